//! The inventory of bounded tables, queues and budgets: rows in `crates/xtask/bounds`, their check
//! against the source, and the page `docs/operate/bounds.md`.
//!
//! A row names a constant or an integer setting, its share for each client, the answer when it is
//! full, and the counter or log line that reports it. A constant that looks like a bound needs a
//! row, or an entry in `crates/xtask/bounds/others.toml` with the reason why it bounds no table,
//! queue or budget.

mod constants;
mod page;
mod signals;
mod table;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::constants::Constant;
use self::signals::Signals;
use self::table::{Inventory, OTHERS, Row, Subject};

/// Path of the page from the root of the workspace.
pub(crate) const PAGE: &str = "docs/operate/bounds.md";

/// Crates of the product. Their constants are checked.
const CRATES: [&str; 14] = [
    "accounting",
    "acme",
    "admin",
    "control",
    "dataplane",
    "fair-share",
    "linux-net",
    "outgoing-http",
    "settings",
    "turn-proto",
    "turn-session",
    "turnpike",
    "user-db",
    "xdp-relay",
];

/// Returns the page.
///
/// # Errors
/// A file of the inventory or a source file cannot be read.
pub(crate) fn markdown(root: &Path) -> Result<String> {
    let constants = constants::read(root, &CRATES)?;
    let settings = integer_settings(&settings::json_schema())?;
    let inventory = table::read(root)?;
    Ok(page::markdown(&inventory, &constants, &settings))
}

/// Returns all findings, a line each.
///
/// # Errors
/// A file of the inventory or a source file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let constants = constants::read(root, &CRATES)?;
    let settings = integer_settings(&settings::json_schema())?;
    let inventory = table::read(root)?;
    let signals = Signals::read(root, &CRATES)?;
    let mut slips = coverage(&inventory, &constants, &settings);
    slips.extend(inventory.rows().flat_map(|row| row.slips(&signals)));
    let text = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    if text != page::markdown(&inventory, &constants, &settings) {
        slips.push(format!("{PAGE}: differs from its sources: run `cargo xtask docs`"));
    }
    Ok(slips)
}

/// Returns bounds without a row, rows without a bound, and subjects that are listed twice.
fn coverage(
    inventory: &Inventory,
    constants: &BTreeMap<String, Constant>,
    settings: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut slips = Vec::new();
    let mut listed = BTreeSet::new();
    for subject in inventory.subjects() {
        let exists = match &subject {
            Subject::Constant(path) => constants.contains_key(path),
            Subject::Setting(key) => settings.contains_key(key),
        };
        if !exists {
            slips.push(format!("{}: {subject} does not exist", table::FOLDER));
        }
        if !listed.insert(subject.clone()) {
            slips.push(format!("{}: {subject} is listed twice", table::FOLDER));
        }
    }
    let bounds = constants.iter().filter(|(_, constant)| constant.is_bound());
    let bounds = bounds.map(|(path, _)| Subject::Constant(path.clone()));
    for subject in bounds.chain(settings.keys().cloned().map(Subject::Setting)) {
        if !listed.contains(&subject) {
            slips.push(format!(
                "{subject}: add a row to {} with its share, answer and counter; if it bounds no \
                 table, queue or budget, add it to {OTHERS}",
                table::FOLDER
            ));
        }
    }
    slips
}

/// Returns the integer keys of the configuration with their defaults. Keys of lists are left out:
/// their sections repeat those of the server.
fn integer_settings(schema: &str) -> Result<BTreeMap<String, String>> {
    let schema: serde_json::Value =
        serde_json::from_str(schema).context("cannot parse the schema of the configuration")?;
    let mut found = BTreeMap::new();
    collect_settings(&schema, "", &mut found);
    Ok(found)
}

fn collect_settings(node: &serde_json::Value, path: &str, found: &mut BTreeMap<String, String>) {
    if let Some(properties) = node["properties"].as_object() {
        for (name, child) in properties {
            let dot = if path.is_empty() { "" } else { "." };
            collect_settings(child, &format!("{path}{dot}{name}"), found);
        }
    } else if node["type"] == "integer" {
        let default = node["default"].as_u64().map_or_else(|| "none".to_owned(), value::grouped);
        found.insert(path.to_owned(), default);
    }
}

impl Row {
    /// Returns empty or contradictory fields, and signals that do not exist.
    fn slips(&self, signals: &Signals) -> Vec<String> {
        let name = self.subject().map_or_else(|error| error, |subject| subject.to_string());
        let mut slips: Vec<_> = self.form().map(|slip| format!("{name}: {slip}")).collect();
        for signal in &self.signals {
            slips.extend(signals.slip(signal).map(|slip| format!("{name}: {slip}")));
        }
        slips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(name: &str) -> (String, Constant) {
        (format!("a::{name}"), Constant::for_test(name, "Text."))
    }

    fn row(constant: &str) -> String {
        format!(
            "[[row]]\nconstant = \"{constant}\"\nkind = \"table\"\nof = \"b\"\nshare = \"c\"\n\
             full = \"d\"\nsignals = []\nunseen = \"e\"\n"
        )
    }

    #[test]
    fn every_bound_of_the_product_is_in_the_inventory() {
        assert_eq!(check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn a_bound_without_a_row_is_found() {
        let constants = [constant("X_MAX"), constant("Y_MAX"), constant("Z_LEN")].into();
        let inventory = Inventory::parse(&row("a::X_MAX"), "").unwrap();
        let slips = coverage(&inventory, &constants, &BTreeMap::new());
        assert_eq!(slips.len(), 1);
        assert!(slips[0].starts_with("a::Y_MAX: add a row"), "{slips:?}");
        let others = "[[group]]\nwhy = \"Length.\"\nconstants = [\"a::Y_MAX\"]\n";
        let inventory = Inventory::parse(&row("a::X_MAX"), others).unwrap();
        assert!(coverage(&inventory, &constants, &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_setting_without_a_row_is_found() {
        let schema = r#"{"properties": {"a": {"properties": {
            "b": {"type": "integer", "default": 20000}, "c": {"type": "string"}}}}}"#;
        let settings = integer_settings(schema).unwrap();
        assert_eq!(settings, [("a.b".to_owned(), "20,000".to_owned())].into());
        let inventory = Inventory::parse("", "").unwrap();
        let slips = coverage(&inventory, &BTreeMap::new(), &settings);
        assert!(slips[0].starts_with("setting a.b: add a row"), "{slips:?}");
    }

    #[test]
    fn a_row_of_a_removed_constant_is_found() {
        let inventory = Inventory::parse(&row("a::GONE_MAX"), "").unwrap();
        let slips = coverage(&inventory, &BTreeMap::new(), &BTreeMap::new());
        assert_eq!(slips, ["crates/xtask/bounds: a::GONE_MAX does not exist"]);
    }

    #[test]
    fn a_constant_is_listed_once() {
        let constants = [constant("X_MAX")].into();
        let others = "[[group]]\nwhy = \"Length.\"\nconstants = [\"a::X_MAX\"]\n";
        let inventory = Inventory::parse(&row("a::X_MAX"), others).unwrap();
        let slips = coverage(&inventory, &constants, &BTreeMap::new());
        assert_eq!(slips, ["crates/xtask/bounds: a::X_MAX is listed twice"]);
    }
}
