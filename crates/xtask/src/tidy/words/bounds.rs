//! Bounds of a crate or a group of pages, stored in `crates/xtask/words/bounds.tsv`.
//!
//! Bounds only fall, down to [`OF_NEW_TEXT`]. Two margins keep small edits from failing the check:
//! a lowered bound is above the rate by [`Rate::ROOM`], and must be lowered again only when a new
//! bound would be lower by [`Rate::SLACK`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::toolchain;

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
/// The file cannot be read, or a line is not a name and three numbers from 0.
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
        let numbers: Option<Vec<f64>> = columns.map(|column| column.parse().ok()).collect();
        let bounds = numbers.and_then(|numbers| Bounds::try_from(numbers).ok());
        // No rate exceeds NaN.
        let is_bound = |bound: &f64| bound.is_finite() && *bound >= 0.0;
        let Some(bounds) = bounds.filter(|bounds| bounds.iter().all(is_bound)) else {
            bail!("{FILE}: a name and three numbers from 0 are separated by tabs: {line}");
        };
        all.insert(name.to_owned(), bounds);
    }
    Ok(all)
}

/// Returns each bound above the committed one. The committed file is that of the last commit, or
/// that of the commit before if nothing has changed since. Without git or such a commit, prints the
/// reason and returns nothing.
pub(super) fn raised(root: &Path, all: &BTreeMap<String, Bounds>) -> Vec<String> {
    let before = committed(root, "HEAD")
        .and_then(|last| if last == *all { committed(root, "HEAD^") } else { Ok(last) });
    match before {
        Ok(before) => compare(&before, all),
        Err(reason) => {
            eprintln!("{FILE} is not compared with a commit: {reason:#}");
            Vec::new()
        }
    }
}

/// Bounds of a commit.
fn committed(root: &Path, commit: &str) -> Result<BTreeMap<String, Bounds>> {
    let mut git = Command::new("git");
    git.args(["show", &format!("{commit}:{FILE}")]).current_dir(root);
    parse(&toolchain::output(&mut git)?)
}

fn compare(before: &BTreeMap<String, Bounds>, all: &BTreeMap<String, Bounds>) -> Vec<String> {
    let mut slips = Vec::new();
    for (name, bounds) in all {
        let Some(before) = before.get(name) else { continue };
        for (kind, (bound, before)) in bounds.iter().zip(before).enumerate() {
            if bound > before {
                let kind = KINDS[kind];
                slips.push(format!("{FILE}: {name}: {kind} rise from {before:.1} to {bound:.1}"));
            }
        }
    }
    slips
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

    #[test]
    fn a_raised_bound_is_reported_and_a_new_one_is_not() {
        let before = parse("a\t1.0\t2.0\t3.0\ngone\t1.0\t1.0\t1.0\n").unwrap();
        let all = parse("a\t0.5\t2.5\t3.0\nnew\t9.0\t9.0\t9.0\n").unwrap();
        assert_eq!(compare(&before, &all), [format!("{FILE}: a: openings rise from 2.0 to 2.5")]);
        assert!(raised(&std::env::temp_dir(), &all).is_empty(), "there is nothing to compare");
    }

    #[test]
    fn bounds_that_no_rate_exceeds_are_refused() {
        for bound in ["NaN", "inf", "-1.0", "x\t1.0"] {
            assert!(parse(&format!("a\t{bound}\t1.0\t1.0\n")).is_err(), "{bound}");
        }
    }
}
