//! Language of the documentation (CONTRIBUTING.md): a doc comment begins with a noun or a verb, and sentences have nouns
//! as subjects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::files;

/// Openings that doc comments avoid.
const OPENINGS: [&str; 8] = ["What", "Who", "Whether", "How", "Where", "When", "Whose", "Whoever"];

/// Words that documentation avoids.
const WORDS: [&str; 7] = ["what", "who", "those", "nobody", "whoever", "whom", "whose"];

/// Most doc comments with such an opening, per 1,000 doc comments of the repository.
const OPENINGS_MAX: f64 = 30.0;

/// Most such words, per 1,000 words of Markdown and doc comments.
const WORDS_MAX: f64 = 3.0;

/// Counts of a crate or a document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    comments: u32,
    openings: u32,
    words: u32,
    avoided: u32,
}

impl Count {
    fn add(&mut self, text: &str) {
        for word in text.split(|part: char| !(part.is_ascii_alphabetic() || "'_".contains(part))) {
            self.words += u32::from(!word.is_empty());
            self.avoided +=
                u32::from(WORDS.iter().any(|avoided| word.eq_ignore_ascii_case(avoided)));
        }
    }

    /// Adds the doc comments of Rust source.
    fn add_source(&mut self, text: &str) {
        let mut follows = false;
        for line in text.lines() {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) = comment {
                let comment = comment.trim_start();
                self.add(comment);
                let first = comment.split(|part: char| !part.is_ascii_alphabetic()).next();
                if !follows && !comment.is_empty() {
                    self.comments += 1;
                    self.openings += u32::from(first.is_some_and(|word| OPENINGS.contains(&word)));
                }
            }
            follows = comment.is_some();
        }
    }

    fn openings_per_1000(self) -> f64 {
        1000.0 * f64::from(self.openings) / f64::from(self.comments.max(1))
    }

    fn avoided_per_1000(self) -> f64 {
        1000.0 * f64::from(self.avoided) / f64::from(self.words.max(1))
    }

    fn exceeds(self) -> bool {
        self.openings_per_1000() > OPENINGS_MAX || self.avoided_per_1000() > WORDS_MAX
    }
}

/// The figures of the repository if they exceed the limits, and of each crate and document that does.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut all = Count::default();
    let mut parts: BTreeMap<String, Count> = BTreeMap::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let part = name.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        let count = parts.entry(part.unwrap_or(&name).to_owned()).or_default();
        let before = *count;
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        if name.ends_with(".rs") {
            count.add_source(&text);
        } else if name.ends_with(".md") {
            count.add(&text);
        }
        all.comments += count.comments - before.comments;
        all.openings += count.openings - before.openings;
        all.words += count.words - before.words;
        all.avoided += count.avoided - before.avoided;
    }
    if !all.exceeds() {
        return Ok(Vec::new());
    }
    parts.retain(|_, count| count.exceeds());
    let lines = [("the repository".to_owned(), all)].into_iter().chain(parts);
    Ok(lines.map(|(part, count)| line(&part, count)).collect())
}

fn line(part: &str, count: Count) -> String {
    format!(
        "{part}: {:.0} of 1,000 doc comments begin with {} ... (at most {OPENINGS_MAX}), {:.1} of 1,000 words are {} \
         ... (at most {WORDS_MAX})",
        count.openings_per_1000(),
        OPENINGS[..3].join(", "),
        count.avoided_per_1000(),
        WORDS[..4].join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_and_words_are_counted_in_doc_comments_alone() {
        let mut count = Count::default();
        count.add_source(
            "//! Addresses.\n//! Who has them.\n\n/// What it is.\n// who\nfn what() {}\n/// Whole.\n",
        );
        assert_eq!(count, Count { comments: 3, openings: 1, words: 8, avoided: 2 });
    }
}
