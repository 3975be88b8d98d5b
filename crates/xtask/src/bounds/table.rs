//! Rows of the inventory, one file for each plane.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Folder of the inventory from the root of the workspace.
pub(super) const FOLDER: &str = "crates/xtask/bounds";

/// File of constants that bound no table, queue or budget.
pub(super) const OTHERS: &str = "crates/xtask/bounds/others.toml";

/// Files of planes with their headings, sorted as on the page.
const PLANES: [(&str, &str); 8] = [
    ("packets", "Packet path"),
    ("core", "Core: allocations, requests, moves"),
    ("connections", "DTLS, TLS and TCP"),
    ("kernel", "Kernel path"),
    ("control", "Control plane: workers, configuration, hand-over, log"),
    ("databases", "Users, databases and the authorizer"),
    ("accounting", "Accounting"),
    ("http", "HTTP and certificates"),
];

/// Bound of a table, queue or budget.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    constant: Option<String>,
    setting: Option<String>,
    pub(super) kind: Kind,
    /// Bounded items.
    pub(super) of: String,
    /// Division among clients, or the reason for its absence.
    pub(super) share: String,
    /// Answer or effect at the bound.
    pub(super) full: String,
    /// Metrics, reasons and log lines that report the bound; see [`super::signals`].
    pub(super) signals: Vec<String>,
    /// Reason why nothing reports the bound.
    pub(super) unseen: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Table,
    Queue,
    Budget,
}

impl Kind {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Budget => "budget",
        }
    }
}

/// Bound that a row describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// Path of a constant.
    Constant(String),
    /// Key of the configuration.
    Setting(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(path) => out.write_str(path),
            Self::Setting(key) => write!(out, "setting {key}"),
        }
    }
}

impl Row {
    /// Returns the bound of the row.
    ///
    /// # Errors
    /// The row does not name exactly one bound.
    pub(super) fn subject(&self) -> Result<Subject, String> {
        match (&self.constant, &self.setting) {
            (Some(path), None) => Ok(Subject::Constant(path.clone())),
            (None, Some(key)) => Ok(Subject::Setting(key.clone())),
            _ => Err(format!("row of {:?}", self.of)),
        }
    }

    /// Returns the errors in the form of the row.
    pub(super) fn form(&self) -> impl Iterator<Item = &'static str> {
        let cells = [&self.of, &self.share, &self.full];
        let is_reported = !self.signals.is_empty();
        let slips = [
            (self.subject().is_err(), "names a constant or a setting, and not both"),
            (cells.iter().any(|cell| cell.is_empty()), "of, share and full have text"),
            (cells.iter().any(|cell| cell.contains(['|', '\n'])), "a cell is one line without |"),
            (is_reported == self.unseen.is_some(), "has signals, or the reason in unseen"),
        ];
        slips.into_iter().filter_map(|(is_slip, text)| is_slip.then_some(text))
    }
}

/// Constants that bound no table, queue or budget.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// Subject of the constants, for readers of the file.
    #[expect(dead_code, reason = "for readers of the file")]
    why: String,
    #[serde(default)]
    constants: Vec<String>,
    #[serde(default)]
    settings: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowFile {
    #[serde(default)]
    row: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFile {
    #[serde(default)]
    group: Vec<Group>,
}

/// Rows of a plane.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) heading: &'static str,
    pub(super) rows: Vec<Row>,
}

/// All files of the inventory.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) planes: Vec<Plane>,
    others: Vec<Group>,
}

impl Inventory {
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.planes.iter().flat_map(|plane| &plane.rows)
    }

    /// Returns the subjects of rows, and the constants and settings listed as others.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Subject> {
        let rows = self.rows().filter_map(|row| row.subject().ok());
        let others = self.others.iter().flat_map(|group| {
            let constants = group.constants.iter().cloned().map(Subject::Constant);
            constants.chain(group.settings.iter().cloned().map(Subject::Setting))
        });
        rows.chain(others)
    }

    /// Parses an inventory of one plane.
    #[cfg(test)]
    pub(super) fn parse(rows: &str, others: &str) -> Result<Self> {
        let rows: RowFile = toml::from_str(rows)?;
        let others: GroupFile = toml::from_str(others)?;
        Ok(Self { planes: vec![Plane { heading: "Plane", rows: rows.row }], others: others.group })
    }
}

/// Reads the inventory.
///
/// # Errors
/// A file is missing, or its form is invalid.
pub(super) fn read(root: &Path) -> Result<Inventory> {
    let mut planes = Vec::new();
    for (name, heading) in PLANES {
        let path = format!("{FOLDER}/{name}.toml");
        let text =
            fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        let file: RowFile =
            toml::from_str(&text).with_context(|| format!("cannot parse {path}"))?;
        planes.push(Plane { heading, rows: file.row });
    }
    let text =
        fs::read_to_string(root.join(OTHERS)).with_context(|| format!("cannot read {OTHERS}"))?;
    let others: GroupFile =
        toml::from_str(&text).with_context(|| format!("cannot parse {OTHERS}"))?;
    Ok(Inventory { planes, others: others.group })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slips(row: &str) -> Vec<&'static str> {
        let cells = "kind = \"queue\"\nof = \"a\"\nshare = \"b\"\n";
        let inventory = Inventory::parse(&format!("[[row]]\n{cells}{row}"), "").unwrap();
        inventory.rows().flat_map(Row::form).collect()
    }

    #[test]
    fn a_row_names_its_bound_its_answer_and_its_signals() {
        let whole = "constant = \"a::B\"\nfull = \"c\"\nsignals = [\"log x\"]\n";
        assert_eq!(slips(whole), [""; 0]);
        assert_eq!(slips("full = \"c\"\nsignals = [\"log x\"]\n").len(), 1);
        assert_eq!(slips(&format!("{whole}setting = \"a.b\"\n")).len(), 1);
        assert_eq!(slips(&whole.replace("\"c\"", "\"\"")).len(), 1);
        assert_eq!(slips(&whole.replace("\"c\"", "\"a | b\"")).len(), 1);
        assert_eq!(slips(&whole.replace("\"log x\"", "")).len(), 1);
        assert_eq!(slips(&format!("{whole}unseen = \"d\"\n")).len(), 1);
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(Inventory::parse("[[row]]\nname = \"a\"\n", "").is_err());
        assert!(Inventory::parse("", "[[group]]\nconstants = []\n").is_err(), "without a reason");
    }
}
