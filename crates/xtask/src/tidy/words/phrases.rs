//! Phrases of `words/phrases.tsv`, each with a plainer form.

use anyhow::{Context, Result, bail};
use regex::{Regex, RegexSet};

const TABLE: &str = include_str!("../../../words/phrases.tsv");

/// Compiled table.
pub(super) struct Phrases {
    rows: Vec<Row>,
    /// Patterns of all rows. Most text matches few of them.
    all: RegexSet,
}

struct Row {
    phrase: Regex,
    /// Pattern of text after the phrase that makes the phrase acceptable.
    except_before: Option<Regex>,
    instead: String,
}

/// A phrase in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) offset: usize,
    pub(super) text: &'a str,
    pub(super) instead: &'a str,
}

impl Phrases {
    /// Compiles the table of the project.
    ///
    /// # Errors
    /// A row has not four columns, or a column is not a regular expression.
    pub(super) fn read() -> Result<Self> {
        Self::of(TABLE)
    }

    fn of(table: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            rows.push(Row::of(line).with_context(|| format!("words/phrases.tsv: {line}"))?);
        }
        let all = RegexSet::new(rows.iter().map(|row| row.phrase.as_str()))?;
        Ok(Self { rows, all })
    }

    /// Returns the phrases in a text, sorted by offset and without overlaps.
    pub(super) fn find<'a>(&'a self, text: &'a str) -> Vec<Found<'a>> {
        let mut found = Vec::new();
        for index in self.all.matches(text) {
            let Row { phrase, except_before, instead } = &self.rows[index];
            for hit in phrase.find_iter(text) {
                let excepted =
                    except_before.as_ref().is_some_and(|next| next.is_match(&text[hit.end()..]));
                if !excepted {
                    found.push(Found { offset: hit.start(), text: hit.as_str(), instead });
                }
            }
        }
        found.sort_by_key(|one| (one.offset, std::cmp::Reverse(one.text.len())));
        let mut end = 0;
        found.retain(|one| {
            let is_free = one.offset >= end;
            if is_free {
                end = one.offset + one.text.len();
            }
            is_free
        });
        found
    }
}

impl Row {
    fn of(line: &str) -> Result<Self> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [phrase, before, except_before, instead] = columns[..] else {
            bail!("there are not four columns, separated by tabs");
        };
        let before = if before.is_empty() { String::new() } else { format!(" (?:{before})") };
        let except_before =
            (!except_before.is_empty()).then(|| format!("(?i-u)^ (?:{except_before})"));
        Ok(Self {
            phrase: Regex::new(&format!(r"(?i-u)\b(?:{phrase})\b{before}"))?,
            except_before: except_before.map(|text| Regex::new(&text)).transpose()?,
            instead: instead.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(table: &str, text: &str) -> Vec<(usize, String)> {
        let phrases = Phrases::of(table).unwrap();
        phrases.find(text).into_iter().map(|found| (found.offset, found.text.to_owned())).collect()
    }

    #[test]
    fn phrases_are_found_in_their_context_alone() {
        let table = "# comment\nbehind\t\t(?:a )?nat\\b\tafter\nmakes?\t(?:an?|the)\\b\t\tcreates";
        assert_eq!(found(table, "behind a NAT, Behind it, lagbehind"), [(14, "Behind".to_owned())]);
        assert_eq!(found(table, "Makes a port and makes sure"), [(0, "Makes a".to_owned())]);
    }

    #[test]
    fn phrases_do_not_overlap() {
        let table = "go on\t\t\tcontinue\ngo on and on\t\t\tcontinue\non\t\t\tat";
        assert_eq!(
            found(table, "go on and on, on"),
            [(0, "go on and on".to_owned()), (14, "on".to_owned())]
        );
    }

    #[test]
    fn the_table_compiles() {
        let phrases = Phrases::read().unwrap();
        assert_eq!(
            phrases.find("It stops at once.")[0].instead,
            "immediately / concurrently (two meanings: choose)"
        );
        assert!(Phrases::of("a\tb").is_err());
    }
}
