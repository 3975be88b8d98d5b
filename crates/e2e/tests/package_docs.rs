//! The documentation of the packages: no link leads to a file that they lack.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{Tool, repository};

const PATIENCE: Duration = Duration::from_secs(60);

/// Files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{error}"));
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Targets of the links of a page to other files.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

#[test]
fn every_link_in_a_package_leads_somewhere() {
    let directory = std::env::temp_dir().join(format!("package-docs-{}", std::process::id()));
    let copied = Tool::run(
        Command::new(repository().join("scripts/package-docs")).arg(&directory),
        PATIENCE,
    );
    assert!(copied.ok, "{}", copied.output);
    let all = files(&directory);
    let pages = all.iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let (mut followed, mut dead) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{error}"));
        for link in links(&text) {
            followed += 1;
            let folder = page.parent().unwrap_or(page);
            if !folder.join(link).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    drop(fs::remove_dir_all(&directory));
    assert!(dead.is_empty() && followed > 100, "{followed} links, dead: {dead:#?}");
    for name in ["examples/grafana/turnpike.json", "examples/prometheus/turnpike.rules.yml"] {
        assert!(all.contains(&directory.join(name)), "{name}");
    }
}
