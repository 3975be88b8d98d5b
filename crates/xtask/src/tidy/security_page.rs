//! The tests named in `docs/security` exist, so that a removed defence is noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const PAGE: &str = "docs/security/README.md";

/// References `path/below/crates.rs::test` of the page without such a test.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let page =
        fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut sources = BTreeMap::new();
    let mut slips = Vec::new();
    for (path, test) in references(&page) {
        let source = sources
            .entry(path)
            .or_insert_with(|| fs::read_to_string(root.join("crates").join(path)));
        let exists = source.as_ref().is_ok_and(|source| has_test(source, test));
        if !exists {
            slips.push(format!("{PAGE}: there is no test {path}::{test}"));
        }
    }
    Ok(slips)
}

/// Returns true if a function of the name has the attribute `test`, also inside of a macro.
fn has_test(source: &str, name: &str) -> bool {
    let heads = ["", "async "].map(|kind| format!("{kind}fn {name}("));
    let is_head = |line: &str| heads.iter().any(|head| line.starts_with(head));
    let marks_test = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    (0..lines.len()).filter(|at| is_head(lines[*at])).any(|at| {
        let before = lines[..at].iter().rev();
        let mut before = before.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        before.any(|line| marks_test(line))
    })
}

fn references(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split('`').skip(1).step_by(2).filter_map(|text| {
        let (path, test) = text.split_once(".rs::")?;
        Some((text.get(..path.len() + 3)?, test))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_the_page_names_exist() {
        assert_eq!(check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn only_a_function_with_the_attribute_is_a_test() {
        assert!(has_test("    #[test]\n    /// Text.\n    #[ignore]\n    fn a() {}\n", "a"));
        assert!(has_test("#[tokio::test(start_paused = true)]\nasync fn a() {}\n", "a"));
        let others =
            ["fn a() {}", "// #[test]\nfn a() {}", "#[test]\n// fn a()", "#[test]\nfn ba() {}"];
        for source in others {
            assert!(!has_test(source, "a"), "{source}");
        }
    }

    #[test]
    fn references_are_found_and_other_code_is_not() {
        let page = "| `a/tests/b.rs::c` and `x.rs`, `d/src/e.rs::f` |";
        let found: Vec<_> = references(page).collect();
        assert_eq!(found, [("a/tests/b.rs", "c"), ("d/src/e.rs", "f")]);
    }
}
