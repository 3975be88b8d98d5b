//! Bounds of a crate or a group of pages, stored in `crates/xtask/words/bounds.tsv`.
//!
//! Bounds only fall, down to [`OF_NEW_TEXT`]. Two margins keep small edits from failing the check:
//! a lowered bound is above the rate by [`Rate::ROOM`], and must be lowered again only when a new
//! bound would be lower by [`Rate::SLACK`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Path of the file from the root of the workspace.
pub(super) const FILE: &str = "crates/xtask/words/bounds.tsv";

const HEADER: &str = "\
# Bounds of `cargo xtask words`, which only fall: `cargo xtask words --lower` lowers them. A crate or
# group of pages without a line has the bounds of new text (crates/xtask/src/tidy/words/bounds.rs).
# name	pronouns per 1,000 words	openings per 1,000 doc comments	phrases per 1,000 words
";

/// Kinds of findings, in the order of the columns.
pub(super) const KINDS: [&str; 3] = ["pronouns", "openings", "phrases"];

/// A value of each kind.
pub(super) type Bounds = [f64; 3];

/// Bounds of a crate or group of pages without a line in the file. Well-read projects have 24 to 50
/// pronouns per 1,000 words.
pub(super) const OF_NEW_TEXT: Bounds = [30.0, 10.0, 8.0];

/// Number of findings in a number of words or doc comments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) found: u32,
    pub(super) of: u32,
}

impl Rate {
    /// Number of findings that any text may have.
    const ALWAYS: u32 = 3;
    /// Step of the bounds in the file.
    const STEP: f64 = 0.5;
    /// Margin of a lowered bound above the rate: per 1,000, or in findings if that is more.
    const ROOM: (f64, f64) = (1.0, 3.0);
    /// Margin of a bound above a lowered bound: per 1,000, or in findings if that is more.
    const SLACK: (f64, f64) = (3.0, 15.0);

    /// Findings per 1,000.
    pub(super) fn per_1000(self) -> f64 {
        1000.0 * f64::from(self.found) / f64::from(self.of.max(1))
    }

    pub(super) fn exceeds(self, bound: f64) -> bool {
        self.found > Self::ALWAYS && self.per_1000() > bound
    }

    /// Returns whether the bound of a kind must be lowered.
    pub(super) fn is_far_below(self, kind: usize, bound: f64) -> bool {
        bound > self.lowered(kind) + self.margin(Self::SLACK)
    }

    /// Bound of a kind that `--lower` stores for this rate.
    fn lowered(self, kind: usize) -> f64 {
        let bound = self.per_1000() + self.margin(Self::ROOM);
        ((bound / Self::STEP).ceil() * Self::STEP).max(OF_NEW_TEXT[kind])
    }

    /// The larger of two margins, per 1,000.
    fn margin(self, (per_1000, findings): (f64, f64)) -> f64 {
        if self.of == 0 { 0.0 } else { per_1000.max(1000.0 * findings / f64::from(self.of)) }
    }
}

/// Reads the file.
///
/// # Errors
/// The file cannot be read, or a line is not a name and three numbers.
pub(super) fn read(root: &Path) -> Result<BTreeMap<String, Bounds>> {
    let text =
        fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    parse(&text)
}

/// Writes the file.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(root: &Path, all: &BTreeMap<String, Bounds>) -> Result<()> {
    fs::write(root.join(FILE), text(all)).with_context(|| format!("cannot write {FILE}"))
}

fn parse(text: &str) -> Result<BTreeMap<String, Bounds>> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let numbers: Vec<f64> = columns.filter_map(|column| column.parse().ok()).collect();
        let Ok(bounds) = Bounds::try_from(numbers) else {
            bail!("{FILE}: a name and three numbers are separated by tabs: {line}");
        };
        all.insert(name.to_owned(), bounds);
    }
    Ok(all)
}

fn text(all: &BTreeMap<String, Bounds>) -> String {
    let mut text = HEADER.to_owned();
    for (name, [pronouns, openings, phrases]) in all {
        let _ = writeln!(text, "{name}\t{pronouns:.1}\t{openings:.1}\t{phrases:.1}");
    }
    text
}

/// Lowers bounds to the rates, and removes those of groups that do not exist. No bound is raised or
/// added.
pub(super) fn lower(all: &mut BTreeMap<String, Bounds>, rates: &BTreeMap<String, [Rate; 3]>) {
    all.retain(|name, _| rates.contains_key(name));
    for (name, bounds) in all {
        for (kind, (bound, rate)) in bounds.iter_mut().zip(rates[name]).enumerate() {
            *bound = bound.min(rate.lowered(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rate(found: u32, of: u32) -> Rate {
        Rate { found, of }
    }

    #[test]
    fn small_edits_need_no_change_of_a_bound() {
        let bound = rate(900, 10_000).lowered(0);
        assert_eq!(bound, 91.0);
        assert!(!rate(909, 10_000).exceeds(bound) && rate(911, 10_000).exceeds(bound));
        let is_far_below = |found| rate(found, 10_000).is_far_below(0, bound);
        assert!(!is_far_below(872) && is_far_below(860));
    }

    #[test]
    fn small_texts_have_room_for_a_few_findings() {
        assert!(!rate(3, 20).exceeds(30.0) && rate(4, 20).exceeds(30.0));
        let bound = rate(2, 100).lowered(2);
        assert!(!rate(5, 100).exceeds(bound) && rate(6, 100).exceeds(bound));
        assert!(!rate(0, 100).is_far_below(2, bound));
    }

    #[test]
    fn bounds_only_fall() {
        let all = "a\t60.0\t40.0\t20.0\ngone\t1.0\t1.0\t1.0\n";
        let mut bounds = parse(all).unwrap();
        let rates = [rate(500, 10_000), rate(500, 10_000), rate(1, 10_000)];
        lower(&mut bounds, &[("a".to_owned(), rates), ("new".to_owned(), rates)].into());
        assert_eq!(text(&bounds), format!("{HEADER}a\t51.0\t40.0\t8.0\n"));
        assert!(parse("a\t1.0\t2.0\n").is_err());
    }
}
