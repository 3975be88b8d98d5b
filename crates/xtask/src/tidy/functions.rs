//! Maximum function length: each configuration of clippy must repeat the limit of the workspace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::files;

/// Name of the configuration, and of the limit in it.
const FILE: &str = "clippy.toml";
const LIMIT: &str = "too-many-lines-threshold";

/// Returns configurations of clippy with another limit than that of the workspace.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let limit = limit(&root.join(FILE))?;
    anyhow::ensure!(limit.is_some(), "{FILE} has no {LIMIT}");
    let mut slips = Vec::new();
    for path in files(root)? {
        if path.ends_with(FILE) && self::limit(&path)? != limit {
            let name = path.strip_prefix(root).unwrap_or(&path).display();
            slips.push(format!("{name}: {LIMIT} is not that of {FILE} in the root"));
        }
    }
    Ok(slips)
}

fn limit(path: &Path) -> Result<Option<i64>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table =
        text.parse().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(table.get(LIMIT).and_then(toml::Value::as_integer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_limit_is_named() {
        let root = std::env::temp_dir().join(format!("tidy-functions-{}", std::process::id()));
        fs::create_dir_all(root.join("crates/a")).unwrap();
        fs::write(root.join(FILE), "too-many-lines-threshold = 80\n").unwrap();
        for (text, slips) in
            [("too-many-lines-threshold = 80\n", 0), ("", 1), ("too-many-lines-threshold = 99", 1)]
        {
            fs::write(root.join("crates/a").join(FILE), text).unwrap();
            assert_eq!(check(&root).unwrap().len(), slips, "{text}");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
