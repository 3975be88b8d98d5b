//! Seeds of a test: fixed ones, which find old faults again, and fresh ones, which search for new
//! faults.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of seeds drawn by this process.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Runs `test` with each of the fixed seeds, then with fresh ones: one for four fixed seeds, at
/// least one.
///
/// `SEEDS=n` draws `n` fresh seeds instead. `SEED=n` (decimal, or hexadecimal with `0x`) runs that
/// seed alone. `FRESH_SEEDS=n` determines the fresh seeds: the test runner uses it to repeat a test
/// with the same seeds. A test that panics prints the seed to repeat it with.
///
/// # Panics
/// When `SEED` or `SEEDS` is not a number.
pub fn for_each_seed(fixed: Range<u64>, mut test: impl FnMut(u64)) {
    let mut run = |seed, kind| {
        let _name = SeedOnPanic(seed, kind);
        test(seed);
    };
    if let Some(seed) = variable("SEED") {
        return run(seed, "chosen");
    }
    let fresh = variable("SEEDS").unwrap_or_else(|| (fixed.end - fixed.start).div_ceil(4));
    println!("seeds {fixed:?} and {fresh} fresh ones");
    fixed.for_each(|seed| run(seed, "fixed"));
    (0..fresh).for_each(|_| run(draw(), "fresh"));
}

/// A seed for a test that wants one alone: fresh in each run and printed, or that of `SEED`.
///
/// # Panics
/// When `SEED` is not a number.
#[must_use]
pub fn fresh_seed() -> u64 {
    let seed = variable("SEED").unwrap_or_else(draw);
    println!("to repeat this run: SEED={seed}");
    seed
}

/// Ten digits at most: they are typed.
fn draw() -> u64 {
    let seed = match variable("FRESH_SEEDS") {
        Some(start) => drawn_from(start, DRAWN.fetch_add(1, Ordering::Relaxed)),
        // The standard library takes its keys from the operating system, which is all that is
        // wanted here.
        None => RandomState::new().hash_one(0),
    };
    seed >> 32
}

/// The same value for the same arguments, in each process.
fn drawn_from(start: u64, index: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((start, index))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| number(&text).unwrap_or_else(|| panic!("{name}={text} is no number")))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Names the seed when the test panics.
struct SeedOnPanic(u64, &'static str);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with the {1} seed {0}: SEED={0} runs it alone", self.0, self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fresh_seeds_follow_the_fixed_ones_and_differ_from_run_to_run() {
        if variable("SEED").or_else(|| variable("SEEDS")).is_some() {
            return;
        }
        let run = || {
            let mut seeds = Vec::new();
            for_each_seed(0..8, |seed| seeds.push(seed));
            seeds
        };
        let (first, second) = (run(), run());
        assert_eq!((first.len(), &first[..8]), (10, &[0, 1, 2, 3, 4, 5, 6, 7][..]));
        assert_ne!(first[8..], second[8..]);
        let mut single = 0;
        for_each_seed(0..1, |_| single += 1);
        assert_eq!(single, 2);
    }

    #[test]
    fn drawn_seeds_do_not_repeat() {
        let drawn: BTreeSet<_> = (0..100).map(|_| draw()).collect();
        assert!(drawn.len() > 95, "{}", drawn.len());
        assert!(drawn.iter().all(|seed| *seed < 1 << 32));
    }

    #[test]
    fn seeds_drawn_from_one_start_repeat_and_differ_from_each_other() {
        let drawn = |start| [0, 1, 2].map(|index| drawn_from(start, index) >> 32);
        assert_eq!(drawn(7), drawn(7));
        let all: BTreeSet<_> = [drawn(7), drawn(8)].concat().into_iter().collect();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(["12", "0x1f", "x"].map(number), [Some(12), Some(31), None]);
    }
}
