//! Places in the repository that name the version of the product.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

use super::read;

/// The Helm chart: its version, and the version of the image that it starts.
const CHART: &str = "dist/helm/turnpike/Chart.yaml";

const RPM_SPEC: &str = "dist/rpm/turnpike.spec";

/// Version in the spec: `scripts/build-package` defines it.
const DEFINED: &str = "%{version}";

/// Returns the version of the workspace from the text of its manifest.
///
/// # Errors
/// The manifest is not valid TOML, or has no version.
pub(super) fn workspace(manifest: &str) -> Result<String> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let version = manifest.get("workspace").and_then(|table| table.get("package"));
    let version = version.and_then(|table| table.get("version")).and_then(toml::Value::as_str);
    Ok(version.context("Cargo.toml has no workspace.package.version")?.to_owned())
}

/// Returns a sentence for each place that names another version.
///
/// # Errors
/// A file cannot be read or parsed.
pub(super) fn missing(root: &Path, version: &str) -> Result<Vec<String>> {
    let mut missing = lock_file(&read(root, "Cargo.lock")?, version)?;
    missing.extend(fields(CHART, &read(root, CHART)?, &["version:", "appVersion:"], &[version]));
    let spec = read(root, RPM_SPEC)?;
    missing.extend(fields(RPM_SPEC, &spec, &["Version:"], &[version, DEFINED]));
    let mut pages = vec![root.join("README.md")];
    collect_pages(&root.join("docs"), &mut pages)?;
    for page in pages {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        missing.extend(examples(&name, &read(root, &name)?, version)?);
    }
    Ok(missing)
}

/// Checks the version of the server in Cargo.lock.
fn lock_file(text: &str, version: &str) -> Result<Vec<String>> {
    let lock: toml::Table = text.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let field = |package: &toml::Value, name: &str| {
        package.get(name).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
    };
    let server = packages.iter().find(|package| field(package, "name") == "turnpike");
    let found = server.map(|package| field(package, "version")).unwrap_or_default();
    Ok(different("Cargo.lock", "turnpike", &found, version).into_iter().collect())
}

/// Checks lines `field value`, each of which must have one of the permitted values.
fn fields(file: &str, text: &str, names: &[&str], permitted: &[&str]) -> Vec<String> {
    let check = |name: &&str| {
        let value = text.lines().find_map(|line| line.strip_prefix(*name)).unwrap_or_default();
        let value = value.trim().trim_matches('"');
        let is_permitted = permitted.contains(&value);
        if is_permitted {
            return None;
        }
        different(file, name.trim_end_matches(':'), value, permitted.first().unwrap_or(&""))
    };
    names.iter().filter_map(check).collect()
}

/// Checks the names of packages in the examples of a page.
fn examples(page: &str, text: &str, version: &str) -> Result<Vec<String>> {
    let package =
        Regex::new(r"turnpike(-coturn-compat)?_([0-9][0-9A-Za-z.+~-]*)_(amd64|arm64|all)\.deb")?;
    let mut missing = Vec::new();
    for found in package.captures_iter(text) {
        missing.extend(different(page, &found[0], &found[2], version));
    }
    Ok(missing)
}

fn different(file: &str, what: &str, found: &str, version: &str) -> Option<String> {
    let found_text = if found.is_empty() { "no version" } else { found };
    (found != version).then(|| format!("{file}: {what} has {found_text} in place of {version}."))
}

/// Appends the pages below a directory, sorted.
fn collect_pages(directory: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        directory.read_dir().with_context(|| format!("cannot list {}", directory.display()))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_pages(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_workspaces() {
        let text = "[workspace.package]\nversion = \"1.2.3\"\n[workspace.dependencies]\n";
        assert_eq!(workspace(text).unwrap(), "1.2.3");
        assert!(workspace("[package]\nversion = \"1.2.3\"\n").is_err());
    }

    #[test]
    fn fields_with_another_version_are_reported() {
        let chart = "apiVersion: v2\nversion: 1.2.3\nappVersion: \"1.2.2\"\n";
        let names = ["version:", "appVersion:"];
        assert_eq!(
            fields("Chart.yaml", chart, &names, &["1.2.3"]),
            ["Chart.yaml: appVersion has 1.2.2 in place of 1.2.3."]
        );
        let spec = |value: &str| {
            fields("a.spec", &format!("Version: {value}\n"), &["Version:"], &["1.2.3", DEFINED])
        };
        assert_eq!(spec("%{version}"), [""; 0]);
        assert_eq!(spec("1.2.3"), [""; 0]);
        assert_eq!(spec("1.0"), ["a.spec: Version has 1.0 in place of 1.2.3."]);
        assert_eq!(
            fields("a.spec", "", &["Version:"], &["1.2.3"]),
            ["a.spec: Version has no version in place of 1.2.3."]
        );
    }

    #[test]
    fn packages_in_examples_are_reported() {
        let page =
            "apt install ./turnpike_1.2.3_amd64.deb ./turnpike-coturn-compat_1.2.2_all.deb\n";
        assert_eq!(
            examples("a.md", page, "1.2.3").unwrap(),
            ["a.md: turnpike-coturn-compat_1.2.2_all.deb has 1.2.2 in place of 1.2.3."]
        );
        assert_eq!(examples("a.md", "turnpike_VERSION_arm64.deb\n", "1.2.3").unwrap(), [""; 0]);
    }

    #[test]
    fn the_lock_file_is_checked() {
        let lock = "[[package]]\nname = \"turnpike\"\nversion = \"1.2.2\"\n";
        assert_eq!(lock_file(lock, "1.2.2").unwrap(), [""; 0]);
        assert_eq!(
            lock_file(lock, "1.2.3").unwrap(),
            ["Cargo.lock: turnpike has 1.2.2 in place of 1.2.3."]
        );
    }
}
