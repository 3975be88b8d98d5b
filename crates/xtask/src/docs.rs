//! Documentation that is made from code.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes each generated file, and prints the changed ones.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (name, text) in [
        ("docs/configuration.md", settings::reference_markdown()),
        ("docs/configuration.schema.json", settings::json_schema()),
        ("docs/operate/api.json", admin::openapi_json()),
        ("docs/operate/api.md", admin::api_markdown()),
        ("docs/operate/coturn-options.md", coturn_config::reference_markdown()),
        ("docs/operate/metrics.md", admin::metrics_markdown()),
        ("docs/operate/reasons.md", admin::reasons_markdown()),
        ("docs/operate/tuning.md", host_tuning::reference_markdown()),
    ] {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            println!("{name}: as it should be");
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(root))
            .with_context(|| format!("cannot make the directory of {name}"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        println!("{name}: written");
    }
    Ok(())
}
