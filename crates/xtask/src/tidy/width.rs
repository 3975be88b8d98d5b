//! Width of comment lines, which rustfmt does not wrap.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::comments::{Comment, Kind, Source};
use super::files;

/// Returns comment lines wider than `max_width` of `rustfmt.toml`.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let format =
        fs::read_to_string(root.join("rustfmt.toml")).context("cannot read rustfmt.toml")?;
    let max = max_width(&format)?;
    let mut slips = Vec::new();
    for path in files(root)? {
        if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            slips.extend(wide(&name, &text, max));
        }
    }
    Ok(slips)
}

fn max_width(format: &str) -> Result<usize> {
    let format: toml::Table = format.parse().context("cannot read rustfmt.toml")?;
    let width = format.get("max_width").and_then(toml::Value::as_integer);
    width.and_then(|width| usize::try_from(width).ok()).context("rustfmt.toml has no max_width")
}

fn wide(name: &str, text: &str, max: usize) -> Vec<String> {
    // Most files have no wide line: reading comments is not necessary.
    if text.lines().all(|line| line.len() <= max) {
        return Vec::new();
    }
    let lines: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
    let comments = Source::of(text).comments;
    let mut wide: Vec<(usize, usize)> = comments
        .iter()
        .filter(|comment| !cannot_break(comment))
        .map(|comment| (comment.line, lines[comment.line - 1]))
        .filter(|(_, width)| *width > max)
        .collect();
    wide.dedup();
    wide.into_iter()
        .map(|(line, width)| {
            format!("{name}:{line}: {width} columns, {max} at most: wrap the comment")
        })
        .collect()
}

/// Returns whether the comment is one word, or a list item or link definition of one word.
fn cannot_break(comment: &Comment<'_>) -> bool {
    let mut words = comment.text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_marker = matches!(first, "-" | "*") || first.starts_with('[') && first.ends_with("]:");
    comment.kind != Kind::Trailing && words.count() <= usize::from(is_marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found() {
        let text = "/// Twenty-one columns.\nfn f() {} // é and more\n// Eighteen éolumns.\n";
        assert_eq!(
            wide("a.rs", text, 20),
            [
                "a.rs:1: 23 columns, 20 at most: wrap the comment",
                "a.rs:2: 23 columns, 20 at most: wrap the comment",
            ]
        );
        assert_eq!(wide("a.rs", text, 23), [""; 0]);
    }

    #[test]
    fn code_strings_and_unbreakable_lines_are_not() {
        for text in [
            "fn with_a_long_name() {}\n",
            "let a = \"// a comment?\";\n",
            "r\"\n// this is not a comment\n\"",
            "/// https://example.com/path\n",
            "/// - https://example.com/path\n",
            "/// [link]: https://example.com/path\n",
        ] {
            assert_eq!(wide("a.rs", text, 20), [""; 0]);
        }
        assert_eq!(wide("a.rs", "f(); // https://example.com\n", 20).len(), 1);
    }

    #[test]
    fn the_width_is_rustfmts() {
        assert_eq!(max_width("edition = \"2024\"\nmax_width = 90\n").unwrap(), 90);
        assert!(max_width("").is_err());
    }
}
