//! Licences, sources and versions of dependencies, by the rules of deny.toml. cargo-deny reads the
//! same file; the tests do not depend on it, since it would have to be compiled first.

mod license;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The keys of deny.toml that are in use. Others are refused: a rule that nothing enforces
/// deceives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Level,
    wildcards: Level,
    #[serde(default)]
    allow_wildcard_paths: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
enum Level {
    Allow,
    Warn,
    Deny,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for crates of this workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// A breach of a rule, with its severity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    level: Level,
    text: String,
}

/// Prints every finding. Fails when a rule denies one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let findings = check(root)?;
    for Finding { level, text } in &findings {
        eprintln!("{}: {text}", if *level == Level::Deny { "denied" } else { "warning" });
    }
    let denied = findings.iter().filter(|finding| finding.level == Level::Deny).count();
    ensure!(denied == 0, "{denied} denied by deny.toml");
    Ok(())
}

fn check(root: &Path) -> Result<Vec<Finding>> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).context("cannot read deny.toml")?;
    let rules: Rules = toml::from_str(&text).context("deny.toml")?;
    judge(&rules, &packages(root, &rules.graph.targets)?)
}

/// The packages that builds for these targets compile.
fn packages(root: &Path, targets: &[String]) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(targets.iter().map(|target| format!("--filter-platform={target}")))
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata wrote other JSON")?;
    ensure!(!metadata.packages.is_empty(), "cargo metadata lists no packages");
    Ok(metadata.packages)
}

fn judge(rules: &Rules, packages: &[Package]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut add = |level, text| {
        if level > Level::Allow {
            findings.push(Finding { level, text });
        }
    };
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for package in packages {
        let Package { name, version, license, source, dependencies } = package;
        versions.entry(name).or_default().push(version);
        match license {
            None => add(Level::Deny, format!("{name} {version}: names no licence")),
            Some(license) => {
                if !license::is_allowed(license, &rules.licenses.allow)
                    .with_context(|| format!("licence of {name} {version}"))?
                {
                    add(Level::Deny, format!("{name} {version}: licence {license}"));
                }
            }
        }
        match source.as_deref() {
            None | Some(CRATES_IO) => {}
            Some(source) => {
                let git = source.starts_with("git+");
                let level =
                    if git { rules.sources.unknown_git } else { rules.sources.unknown_registry };
                add(level, format!("{name} {version}: comes from {source}"));
            }
        }
        // Crates of crates.io have none; their dependencies are locked besides.
        for dependency in dependencies.iter().filter(|_| source.is_none()) {
            let by_path = dependency.path.is_some() && rules.bans.allow_wildcard_paths;
            if dependency.req == "*" && !by_path {
                add(rules.bans.wildcards, format!("{name}: any version of {}", dependency.name));
            }
        }
    }
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        add(rules.bans.multiple_versions, format!("{name}: versions {}", versions.join(", ")));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        graph = { targets = [] }
        licenses = { allow = ["MIT"] }
        bans = { multiple-versions = "warn", wildcards = "deny", allow-wildcard-paths = true }
        sources = { unknown-registry = "deny", unknown-git = "deny" }
    "#;

    fn findings(packages: serde_json::Value) -> Vec<(Level, String)> {
        let packages: Vec<Package> = serde_json::from_value(packages).unwrap();
        let findings = judge(&toml::from_str(RULES).unwrap(), &packages).unwrap();
        findings.into_iter().map(|finding| (finding.level, finding.text)).collect()
    }

    fn package(version: &str, license: Option<&str>, source: Option<&str>) -> serde_json::Value {
        serde_json::json!({
            "name": "one", "version": version, "license": license, "source": source,
            "dependencies": [],
        })
    }

    #[test]
    fn dependencies_keep_the_rules_of_this_repository() {
        let mut findings = check(&crate::root()).unwrap();
        findings.retain(|finding| finding.level == Level::Deny);
        assert_eq!(findings, []);
    }

    #[test]
    fn other_licences_and_sources_are_denied() {
        for (package, text) in [
            (package("1.0.0", Some("GPL-3.0"), Some(CRATES_IO)), "one 1.0.0: licence GPL-3.0"),
            (package("1.0.0", None, None), "one 1.0.0: names no licence"),
            (
                package("1.0.0", Some("MIT"), Some("git+https://example.org/one")),
                "one 1.0.0: comes from git+https://example.org/one",
            ),
            (
                package("1.0.0", Some("MIT"), Some("registry+https://example.org/index")),
                "one 1.0.0: comes from registry+https://example.org/index",
            ),
        ] {
            assert_eq!(findings(serde_json::json!([package])), [(Level::Deny, text.to_owned())]);
        }
        let ours = serde_json::json!([package("1.0.0", Some("MIT"), Some(CRATES_IO))]);
        assert_eq!(findings(ours), []);
    }

    #[test]
    fn two_versions_are_a_warning_and_any_version_is_denied() {
        let one = |version| package(version, Some("MIT"), Some(CRATES_IO));
        let both = findings(serde_json::json!([one("1.0.0"), one("2.0.0")]));
        assert_eq!(both, [(Level::Warn, "one: versions 1.0.0, 2.0.0".to_owned())]);
        let mut ours = package("1.0.0", Some("MIT"), None);
        ours["dependencies"] = serde_json::json!([
            { "name": "far", "req": "*", "path": null },
            { "name": "near", "req": "*", "path": "/near" },
        ]);
        let found = findings(serde_json::json!([ours]));
        assert_eq!(found, [(Level::Deny, "one: any version of far".to_owned())]);
    }

    #[test]
    fn a_rule_that_is_not_enforced_is_refused() {
        let more = RULES.replace("allow = [\"MIT\"]", "allow = [\"MIT\"], private = true");
        assert!(toml::from_str::<Rules>(&more).is_err());
    }
}
