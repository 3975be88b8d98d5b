//! Documentation that is made from code.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes each generated file, and prints the changed ones.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (name, text) in pages(root)? {
        if is_current(root, name, &text) {
            println!("{name}: as it should be");
            continue;
        }
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(root))
            .with_context(|| format!("cannot make the directory of {name}"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        println!("{name}: written");
    }
    Ok(())
}

/// Returns the names of generated files that differ from the code.
///
/// # Errors
/// A source of a page cannot be read.
pub(crate) fn outdated(root: &Path) -> Result<Vec<&'static str>> {
    let mut pages = pages(root)?;
    pages.retain(|(name, text)| !is_current(root, name, text));
    Ok(pages.into_iter().map(|(name, _)| name).collect())
}

/// Returns names and texts of the generated files.
fn pages(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let examples = root.join("crates/coturn-config/tests/fixtures");
    let installations = coturn_config::installations_markdown(&examples)
        .context("cannot read the examples of coturn's configuration")?;
    let bounds = crate::bounds::markdown(root).context("cannot read the inventory of bounds")?;
    Ok(vec![
        ("docs/configuration.md", settings::reference_markdown()),
        ("docs/configuration.schema.json", settings::json_schema()),
        ("docs/operate/api.json", admin::openapi_json()),
        ("docs/operate/api.md", admin::api_markdown()),
        ("docs/migrate/coturn-options.md", coturn_config::reference_markdown()),
        ("docs/migrate/coturn-inventory.md", coturn_config::inventory::inventory_markdown()),
        ("docs/migrate/installations.md", installations),
        ("docs/operate/metrics.md", admin::metrics_markdown()),
        ("docs/operate/reasons.md", admin::reasons_markdown()),
        (crate::bounds::PAGE, bounds),
        ("docs/operate/tuning.md", host_tuning::reference_markdown()),
    ])
}

fn is_current(root: &Path, name: &str, text: &str) -> bool {
    fs::read_to_string(root.join(name)).is_ok_and(|old| old == text)
}

#[cfg(test)]
mod tests {
    use coturn_config::inventory::{METRICS, State};

    /// A name of coturn's is the same here if, and only if, the server has a metric of that name.
    #[test]
    fn coturns_metrics_have_their_true_state() {
        let page = admin::metrics_markdown();
        for item in METRICS.items {
            for name in item.names.split("; ") {
                let is_there = page.contains(&format!("| `{name}` |"));
                assert_eq!(is_there, matches!(item.state, State::Same(_)), "{name}");
            }
            let (State::Replaced(here) | State::Missing(here)) = item.state else { continue };
            for name in here.split('`').filter(|name| name.starts_with("turnpike_")) {
                assert!(page.contains(&format!("| `{name}` |")), "{name}");
            }
        }
    }
}
