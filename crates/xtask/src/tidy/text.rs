//! Form of the sources: long files, leftovers, crates without a description.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::files;

/// Lines in a Rust file, past which there is a seam to find.
const LINES_MAX: usize = 600;

/// Lines in a file of tests, which is a list: it is read an entry at a time.
const TEST_LINES_MAX: usize = 800;

/// Longer files, each with its reason.
const LONG: [(&str, &str); 0] = [];

/// Text that must not stay, the files concerned, and the remedy. Written in parts, so that this
/// file is checked too.
const LEFTOVERS: [(&str, Where, &str); 7] = [
    (concat!("to", "do!"), Where::Rust, "write it, or return an error"),
    (concat!("unimple", "mented!"), Where::Rust, "write it, or return an error"),
    (concat!("TO", "DO"), Where::Everywhere, "do it, or leave it out"),
    (concat!("FIX", "ME"), Where::Everywhere, "mend it"),
    (concat!("/wo", "rk/"), Where::Everywhere, "a path of one machine"),
    (concat!("/ro", "ot/"), Where::Everywhere, "a path of one machine"),
    (concat!("/tm", "p/"), Where::Rust, "std::env::temp_dir() knows where it is"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Rust,
    Everywhere,
}

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut slips = Vec::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let rust = path.extension().is_some_and(|ending| ending == "rs");
        slips.extend(leftovers(&name, &text, rust));
        if rust {
            slips.extend(length(&name, &text));
            slips.extend(crate_text(&name, &text));
        }
    }
    Ok(slips)
}

fn leftovers(name: &str, text: &str, rust: bool) -> Vec<String> {
    let mut slips = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (leftover, place, reason) in LEFTOVERS {
            if line.contains(leftover) && (rust || place == Where::Everywhere) {
                slips.push(format!("{name}:{}: {leftover}: {reason}", number + 1));
            }
        }
    }
    slips
}

fn length(name: &str, text: &str) -> Option<String> {
    let most = if name.split('/').any(|part| part == "tests") { TEST_LINES_MAX } else { LINES_MAX };
    let lines = text.lines().count();
    let excused = LONG.iter().any(|(long, _)| *long == name);
    (lines > most && !excused)
        .then(|| format!("{name}: {lines} lines, {most} at most: look for the seam"))
}

/// The root file of a crate describes the crate and its invariants.
fn crate_text(name: &str, text: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').collect();
    let ["crates", _, "src", "lib.rs" | "main.rs"] = parts.as_slice() else { return None };
    let said = text.lines().take_while(|line| line.starts_with("//!")).count();
    (said < 2).then(|| {
        format!("{name}: has to begin with what the crate is, and what always holds (//!)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found() {
        let text = format!("fn main() {{\n    {}()\n}}\n", LEFTOVERS[0].0);
        assert_eq!(
            leftovers("a.rs", &text, true),
            [format!("a.rs:2: {}: write it, or return an error", LEFTOVERS[0].0)]
        );
        assert_eq!(leftovers("a.md", &text, false), [""; 0]);
        assert_eq!(
            length("a.rs", &"\n".repeat(601)).unwrap(),
            "a.rs: 601 lines, 600 at most: look for the seam"
        );
        assert_eq!(length("a.rs", &"\n".repeat(600)), None);
        assert_eq!(length("crates/a/tests/b.rs", &"\n".repeat(800)), None);
        assert!(length("crates/a/tests/b.rs", &"\n".repeat(801)).is_some());
        assert!(crate_text("crates/a/src/lib.rs", "//! One line.\n").is_some());
        assert!(
            crate_text("crates/a/src/lib.rs", "//! What it is.\n//!\n//! What holds.\n").is_none()
        );
        assert!(crate_text("crates/a/src/other.rs", "").is_none());
    }
}
