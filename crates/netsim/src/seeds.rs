//! Running a test over many seeds, and saying which one failed.

use std::ops::Range;

/// Runs the test once for each seed, or only for the seed in the environment variable `SEED`
/// (decimal, or hexadecimal with `0x`). A panic inside prints the seed.
///
/// # Panics
/// When `SEED` is set and is no number.
pub fn for_each_seed(seeds: Range<u64>, mut test: impl FnMut(u64)) {
    let chosen = std::env::var("SEED").ok().map(|text| {
        let parsed = match text.strip_prefix("0x") {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
            None => text.parse(),
        };
        parsed.unwrap_or_else(|_| panic!("SEED={text} is no number"))
    });
    let seeds = chosen.map_or(seeds, |seed| seed..seed.saturating_add(1));
    for seed in seeds {
        let _name = SeedOnPanic(seed);
        test(seed);
    }
}

/// Names the seed when the test panics.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with SEED={}: set this variable to run it alone", self.0);
        }
    }
}
