//! `cargo xtask release --check`: reports what a release of the version in Cargo.toml lacks, a
//! sentence each. It changes nothing.

mod changelog;
mod versions;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{docs, tidy, toolchain};

/// Maximum number of changed files that a report names.
const NAMED_FILES_MAX: usize = 3;

/// Prints the missing parts.
///
/// # Errors
/// Something is missing, or a check cannot run.
pub(crate) fn check(root: &Path) -> Result<()> {
    let version = versions::workspace(&read(root, "Cargo.toml")?)?;
    let mut missing = changelog::missing(&read(root, "CHANGELOG.md")?, &version);
    missing.extend(versions::missing(root, &version)?);
    missing.extend(documentation(root)?);
    missing.extend(repository(root, &version)?);
    for sentence in &missing {
        println!("{sentence}");
    }
    ensure!(missing.is_empty(), "{} missing for a release of {version}", missing.len());
    println!("Nothing is missing for a release of {version}.");
    Ok(())
}

fn read(root: &Path, name: &str) -> Result<String> {
    fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
}

/// Checks the generated pages and the findings of `cargo xtask tidy`.
fn documentation(root: &Path) -> Result<Vec<String>> {
    let outdated = docs::outdated(root)?;
    let mut missing: Vec<String> = outdated
        .iter()
        .map(|name| format!("{name} differs from the code: run `cargo xtask docs`."))
        .collect();
    let findings = tidy::check(root)?.len();
    if findings > 0 {
        missing.push(format!("`cargo xtask tidy` reports {findings} findings."));
    }
    Ok(missing)
}

/// Checks the working tree and the tags of git.
fn repository(root: &Path, version: &str) -> Result<Vec<String>> {
    let git = |arguments: &[&str]| {
        toolchain::output(Command::new("git").args(arguments).current_dir(root))
    };
    let mut missing: Vec<String> = unclean(&git(&["status", "--porcelain"])?).into_iter().collect();
    missing.extend(tagged(&git(&["tag", "--list"])?, version));
    Ok(missing)
}

/// Returns a sentence about changes without a commit, from the output of `git status --porcelain`.
fn unclean(status: &str) -> Option<String> {
    let files: Vec<&str> = status.lines().filter_map(|line| line.get(3..)).collect();
    let named = files.iter().take(NAMED_FILES_MAX).copied().collect::<Vec<_>>().join(", ");
    let further = files.len().saturating_sub(NAMED_FILES_MAX);
    let further = if further > 0 { format!(" and {further} more") } else { String::new() };
    (!files.is_empty())
        .then(|| format!("The working tree has changes without a commit: {named}{further}."))
}

/// Returns a sentence about a tag of the version, from the output of `git tag --list`.
fn tagged(tags: &str, version: &str) -> Option<String> {
    let tag = tags.lines().find(|tag| tag.strip_prefix('v').unwrap_or(tag) == version)?;
    Some(format!("The tag {tag} exists already: set the next version in Cargo.toml."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_named() {
        assert_eq!(unclean(""), None);
        let two = unclean(" M Cargo.toml\n?? notes\n").unwrap();
        assert_eq!(two, "The working tree has changes without a commit: Cargo.toml, notes.");
        let five = unclean(" M a\n M b\n M c\nA  d\n D e\n").unwrap();
        assert!(five.ends_with(": a, b, c and 2 more."), "{five}");
    }

    #[test]
    fn tags_of_the_version_are_found() {
        for tag in ["0.2.0", "v0.2.0"] {
            let sentence = tagged(&format!("v0.1.0\n{tag}\n"), "0.2.0").unwrap();
            assert!(sentence.starts_with(&format!("The tag {tag} exists")), "{sentence}");
        }
        assert_eq!(tagged("v0.2.0-rc1\nv0.12.0\n", "0.2.0"), None);
    }

    #[test]
    fn each_check_runs_on_this_repository() {
        let root = crate::root();
        let version = versions::workspace(&read(&root, "Cargo.toml").unwrap()).unwrap();
        assert_eq!(versions::missing(&root, &version).unwrap(), [""; 0]);
        let missing = versions::missing(&root, "9.9.9").unwrap().join("\n");
        for file in ["Cargo.lock", "Chart.yaml", "docs/operate/install.md"] {
            assert!(missing.contains(file), "no {file} in {missing}");
        }
        changelog::missing(&read(&root, "CHANGELOG.md").unwrap(), &version);
    }
}
