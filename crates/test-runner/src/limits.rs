//! Limits of single tests, and the lane in which the tests of a package run.

use std::time::Duration;

/// Place of a test among others that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Mostly waits: for timers, other hosts and other people's programs.
    Waiting,
    /// Mostly computes, and gives way to those that wait.
    Computing,
}

/// Tests of [`Lane::Waiting`] at a time. Each uses a third of a core at most, and none is held up
/// by the others.
pub(crate) const WAITING: usize = 6;

/// Tests and checks of [`Lane::Computing`] at a time for each core.
pub(crate) const COMPUTING_PER_CORE: usize = 1;

/// Priority (nice) of [`Lane::Computing`].
pub(crate) const COMPUTING_NICE: i32 = 10;

/// Time limit of a test in a simulation, or of a value: none takes as much as a tenth of it on two
/// cores.
const COMPUTING_LIMIT: Duration = Duration::from_secs(120);

/// Time limit of a test with processes in networks of their own.
const WAITING_LIMIT: Duration = Duration::from_secs(240);

/// Tests with more time, by the beginning of their full names, each with its reason.
const LONGER: [(&str, u64, &str); 1] =
    [("e2e package::", 600, "installs packages in a Debian machine that is made on the first run")];

/// Packages whose tests mostly wait.
const WAITING_PACKAGES: [&str; 2] = ["e2e", "turn-bench"];

/// The lane of a package's tests.
pub(crate) fn lane(package: &str) -> Lane {
    if WAITING_PACKAGES.contains(&package) { Lane::Waiting } else { Lane::Computing }
}

/// Time after which a test is ended and counts as failed.
pub(crate) fn time_limit(package: &str, full_name: &str) -> Duration {
    let longer = LONGER.iter().find(|(start, ..)| full_name.starts_with(start));
    match (longer, lane(package)) {
        (Some((_, seconds, _)), _) => Duration::from_secs(*seconds),
        (None, Lane::Waiting) => WAITING_LIMIT,
        (None, Lane::Computing) => COMPUTING_LIMIT,
    }
}
