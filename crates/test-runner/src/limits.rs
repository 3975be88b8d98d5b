//! Time limits of tests, and the lane for the tests of a package.

use std::time::Duration;

/// Queue of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Tests that mostly wait for timers, other hosts and third-party programs.
    Waiting,
    /// Tests that mostly compute, at a lower priority.
    Computing,
}

/// Number of concurrent tests of [`Lane::Waiting`]. Each uses at most a third of a core on average.
pub(crate) const WAITING: usize = 6;

/// Number of concurrent tests of [`Lane::Computing`] per core.
pub(crate) const COMPUTING_PER_CORE: usize = 1;

/// Priority (nice) of [`Lane::Computing`].
pub(crate) const COMPUTING_NICE: i32 = 10;

/// Time limit of tests in [`Lane::Computing`]. The longest takes a quarter of the limit on two idle
/// cores.
const COMPUTING_LIMIT: Duration = Duration::from_secs(240);

/// Time limit of tests in [`Lane::Waiting`].
const WAITING_LIMIT: Duration = Duration::from_secs(240);

/// Tests with a higher limit: start of the full name, limit in seconds, reason.
const LONGER: [(&str, u64, &str); 8] = [
    ("e2e package::", 600, "installs packages in a Debian machine that is made on the first run"),
    (
        "simulation worlds::many_worlds",
        900,
        "computes for a minute, beside the compilers of checks",
    ),
    ("turn-proto costs::", 600, "runs in valgrind, beside the compilers of checks"),
    ("xdp-relay reasons::", 600, "loads programs for each reason, beside the compilers of checks"),
    ("xtask no_std::", 900, "compiles, beside the compilers of checks"),
    ("xtask cross::", 900, "compiles the product, beside the compilers of checks"),
    ("e2e offload::ends::a_permission_without_refresh", 600, "waits five minutes, by hand"),
    ("e2e offload::order::", 1800, "sends ten million packets, by hand"),
];

/// Packages of [`Lane::Waiting`].
const WAITING_PACKAGES: [&str; 2] = ["e2e", "turn-bench"];

/// Tests of other packages in [`Lane::Waiting`], by the start of the full name. Such a test uses up
/// a share of processor time, which the clock refills: at a low priority the refill is faster.
const WAITING_TESTS: [&str; 2] =
    ["dataplane dtls::an_address_has_a_share", "dataplane dtls::a_tls_handshake_waits"];

/// Returns the lane for a test.
pub(crate) fn lane(package: &str, full_name: &str) -> Lane {
    let waits = WAITING_PACKAGES.contains(&package)
        || WAITING_TESTS.iter().any(|start| full_name.starts_with(start));
    if waits { Lane::Waiting } else { Lane::Computing }
}

/// Returns the time after which a test is killed and has failed.
pub(crate) fn time_limit(package: &str, full_name: &str) -> Duration {
    let longer = LONGER.iter().find(|(start, ..)| full_name.starts_with(start));
    match (longer, lane(package, full_name)) {
        (Some((_, seconds, _)), _) => Duration::from_secs(*seconds),
        (None, Lane::Waiting) => WAITING_LIMIT,
        (None, Lane::Computing) => COMPUTING_LIMIT,
    }
}
