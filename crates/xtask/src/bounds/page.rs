//! The page of the inventory.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::constants::Constant;
use super::signals::LOG;
use super::table::{Inventory, Row, Subject};
use super::value;

const HEADER: &str = "\
<!-- Written by `cargo xtask docs` from crates/xtask/bounds. -->

# Bounds

Tables, queues and budgets of the server. Values of [settings](../configuration.md) are defaults. Networks are those of
`crates/fair-share`. [Metrics](metrics.md) and [reasons](reasons.md) explain the last column; text in quotation marks is part of a
log line.
";

const COLUMNS: &str = "
| bound | value | of | share | answer when full | reported by |
|---|---|---|---|---|---|
";

/// Formats the page.
pub(super) fn markdown(
    inventory: &Inventory,
    constants: &BTreeMap<String, Constant>,
    settings: &BTreeMap<String, String>,
) -> String {
    let mut page = HEADER.to_owned();
    for plane in &inventory.planes {
        let _ = write!(page, "\n## {}\n{COLUMNS}", plane.heading);
        for row in &plane.rows {
            let (name, value) = match row.subject() {
                Ok(Subject::Constant(path)) => {
                    let is_bytes = row.of.starts_with("bytes") || path.contains("BYTES");
                    (short(&path), value::text(constants, &path, is_bytes))
                }
                Ok(Subject::Setting(key)) => {
                    let default = settings.get(&key).cloned().unwrap_or_default();
                    (key, default)
                }
                Err(_) => continue,
            };
            let (of, kind) = (&row.of, row.kind.label());
            let _ = writeln!(
                page,
                "| `{name}` | {value} | {kind}: {of} | {} | {} | {} |",
                row.share,
                row.full,
                reports(row)
            );
        }
    }
    page
}

/// Path of a constant without the module `limits`.
fn short(path: &str) -> String {
    path.replace("::limits::", "::")
}

fn reports(row: &Row) -> String {
    let signals = row.signals.iter().map(|signal| match signal.strip_prefix(LOG) {
        Some(text) => format!("\u{201c}{text}\u{201d}"),
        None => signal.split(' ').map(|part| format!("`{part}`")).collect::<Vec<_>>().join(" "),
    });
    let signals: Vec<_> = signals.collect();
    match &row.unseen {
        Some(reason) => format!("nothing: {reason}"),
        None => signals.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_value_of_its_source() {
        let rows = "[[row]]\nconstant = \"a::limits::C_MAX\"\nkind = \"table\"\nof = \"calls\"\n\
            share = \"by account\"\nfull = \"508\"\nsignals = [\"x_total y\", \"log no room\"]\n\
            [[row]]\nsetting = \"d.e\"\nkind = \"queue\"\nof = \"lines\"\nshare = \"none\"\n\
            full = \"dropped\"\nsignals = []\nunseen = \"f\"\n";
        let inventory = Inventory::parse(rows, "").unwrap();
        let constants = [("a::limits::C_MAX".to_owned(), Constant::for_test("C_MAX", ""))].into();
        let page = markdown(&inventory, &constants, &[("d.e".to_owned(), "7".to_owned())].into());
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let expected = [
            "| `a::C_MAX` | 1 | table: calls | by account | 508 | `x_total` `y`, \u{201c}no room\u{201d} |",
            "| `d.e` | 7 | queue: lines | none | dropped | nothing: f |",
        ];
        assert_eq!(lines, expected);
    }
}
