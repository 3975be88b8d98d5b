//! The page around the sections: one file that needs nothing else to be read.

use super::escape;

/// Colours there are; further servers take them again from the first.
pub(super) const COLOURS: usize = 6;

/// A heading with what belongs under it.
pub(super) struct Section {
    /// What it is about.
    pub(super) title: String,
    /// A sentence on how to read it.
    pub(super) lead: String,
    /// HTML.
    pub(super) body: String,
}

/// The whole page.
pub(super) fn render(title: &str, lead: &str, sections: &[Section]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p class=\"soft\">{2}</p>\n",
        escape(title),
        include_str!("page.css"),
        escape(lead),
    );
    for section in sections {
        let (title, lead) = (escape(&section.title), escape(&section.lead));
        html += &format!("<h2>{title}</h2>\n<p class=\"soft\">{lead}</p>\n{}\n", section.body);
    }
    html + "</body>\n</html>\n"
}

/// Pictures side by side, each with a heading; those that show nothing are left out.
pub(super) fn cards(cards: impl IntoIterator<Item = (String, String)>) -> String {
    let mut html = String::new();
    for (title, body) in cards {
        if !body.is_empty() {
            html += &format!("<div class=\"card\"><h3>{}</h3>{body}</div>\n", escape(&title));
        }
    }
    format!("<div class=\"cards\">\n{html}</div>")
}

/// A cell of a table.
pub(super) enum Cell {
    /// Set to the right.
    Figure(String),
    /// Set to the left, broken where it is long.
    Words(String),
}

/// A table with a heading, whose names stand where the columns do.
pub(super) fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut html = String::from("<div class=\"wide\"><table>\n<tr>");
    for (column, name) in heading.iter().enumerate() {
        let words = rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Words(_))));
        let class = if words { " class=\"words\"" } else { "" };
        html += &format!("<th{class}>{}</th>", escape(name));
    }
    html += "</tr>\n";
    for row in rows {
        html += "<tr>";
        for cell in row {
            html += &match cell {
                Cell::Figure(text) => format!("<td>{}</td>", escape(&text)),
                Cell::Words(text) => format!("<td class=\"words\">{}</td>", escape(&text)),
            };
        }
        html += "</tr>\n";
    }
    html + "</table></div>"
}
