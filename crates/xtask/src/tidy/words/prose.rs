//! Prose of comments and Markdown, by paragraph. Code spans and link targets are blanked, and code
//! blocks are left out: names are not words.

use super::super::comments::{Comment, Kind, Source};

/// Filler for code spans.
pub(super) const CODE: char = '`';

/// A paragraph, list item, heading or table row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paragraph {
    /// Text on one line, without code.
    pub(super) text: String,
    /// Offset in `text` and number in the file of each source line.
    lines: Vec<(usize, usize)>,
    /// True at the start of a doc comment.
    pub(super) opens: bool,
}

impl Paragraph {
    /// Number of the source line at an offset of the text.
    pub(super) fn line(&self, offset: usize) -> usize {
        let before = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines.get(before.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }
}

/// Returns the paragraphs of a Rust file's comments outside tests.
pub(super) fn of_rust(text: &str) -> Vec<Paragraph> {
    let source = Source::of(text);
    let tests = source.test_lines();
    let mut reader = Reader::default();
    let mut last: Option<Comment<'_>> = None;
    for comment in source.comments {
        if tests.iter().any(|range| range.contains(&comment.line)) {
            continue;
        }
        let continues = last.is_some_and(|last| {
            last.kind == comment.kind
                && last.line + 1 == comment.line
                && comment.kind != Kind::Trailing
        });
        if !continues {
            reader.end_block();
            reader.opens = comment.kind == Kind::Doc;
        }
        reader.add(comment.line, comment.text);
        last = Some(comment);
    }
    reader.end_block();
    reader.paragraphs
}

/// Returns the paragraphs of a Markdown page.
pub(super) fn of_markdown(text: &str) -> Vec<Paragraph> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        reader.add(index + 1, line);
    }
    reader.end_block();
    reader.paragraphs
}

/// Joins lines to paragraphs.
#[derive(Default)]
struct Reader {
    paragraphs: Vec<Paragraph>,
    current: Paragraph,
    in_code_block: bool,
    opens: bool,
}

impl Reader {
    fn add(&mut self, number: usize, line: &str) {
        let line = line.trim();
        if line.starts_with("```") {
            self.end_paragraph();
            self.in_code_block = !self.in_code_block;
            return;
        }
        if self.in_code_block {
            return;
        }
        if line.is_empty() || starts_paragraph(line) {
            self.end_paragraph();
        }
        if line.is_empty() {
            return;
        }
        self.current.opens |= std::mem::take(&mut self.opens);
        if !self.current.text.is_empty() {
            self.current.text.push(' ');
        }
        self.current.lines.push((self.current.text.len(), number));
        self.current.text.push_str(line);
        if line.starts_with(['#', '|']) {
            self.end_paragraph();
        }
    }

    fn end_paragraph(&mut self) {
        let mut paragraph = std::mem::take(&mut self.current);
        if !paragraph.text.is_empty() {
            paragraph.text = without_code(&paragraph.text);
            self.paragraphs.push(paragraph);
        }
    }

    fn end_block(&mut self) {
        self.end_paragraph();
        self.in_code_block = false;
    }
}

/// Returns whether a line is a list item, heading, table row or link definition.
fn starts_paragraph(line: &str) -> bool {
    let digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_numbered =
        digits.len() < line.len() && (digits.starts_with(". ") || digits.starts_with(") "));
    is_numbered || ["- ", "* ", "+ ", "#", "|", "<"].iter().any(|start| line.starts_with(start))
}

/// Replaces code spans with [`CODE`] and link targets with brackets, byte for byte.
fn without_code(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, filler) = if first == '`' {
            (code_length(rest), CODE)
        } else if rest.starts_with("](") {
            (rest.find(')').map_or(1, |end| end + 1), ']')
        } else if rest.starts_with("<!--") {
            (rest.find("-->").map_or(rest.len(), |end| end + 3), ')')
        } else if rest.starts_with("http://") || rest.starts_with("https://") {
            (rest.find([' ', ')', '>']).unwrap_or(rest.len()), ')')
        } else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        plain.extend(std::iter::repeat_n(filler, length));
        rest = &rest[length..];
    }
    plain
}

/// Length of the code span at the start of `rest`, with a fence of one or several back quotes.
fn code_length(rest: &str) -> usize {
    let fence = rest.len() - rest.trim_start_matches('`').len();
    rest[fence..].find(&rest[..fence]).map_or(fence, |end| end + 2 * fence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(paragraphs: &[Paragraph]) -> Vec<(&str, usize, bool)> {
        paragraphs
            .iter()
            .map(|paragraph| (paragraph.text.as_str(), paragraph.line(0), paragraph.opens))
            .collect()
    }

    #[test]
    fn comments_become_paragraphs() {
        let text = "//! Crate\n//! `a b` text.\n//!\n//! - item\n//!   more\n//! - next\nlet a = 1; // x\n\
                    // y\n#[cfg(test)]\nmod tests {\n    // z\n}\n/// ```\n/// code\n/// ```\n/// End";
        let paragraphs = of_rust(text);
        assert_eq!(
            texts(&paragraphs),
            [
                ("Crate ````` text.", 1, true),
                ("- item more", 4, false),
                ("- next", 6, false),
                ("x", 7, false),
                ("y", 8, false),
                ("End", 16, true),
            ]
        );
        assert_eq!(paragraphs[0].line(5), 1);
        assert_eq!(paragraphs[0].line(6), 2);
    }

    #[test]
    fn links_and_code_are_blanked() {
        let page = "# Title\nSee [this page](a/b.md) at https://x.y/its and\n``a ` b``.\n| a | b |\n| - | - |";
        assert_eq!(
            texts(&of_markdown(page)),
            [
                ("# Title", 1, false),
                ("See [this page]]]]]]]]] at ))))))))))))))) and `````````.", 2, false),
                ("| a | b |", 4, false),
                ("| - | - |", 5, false),
            ]
        );
    }
}
