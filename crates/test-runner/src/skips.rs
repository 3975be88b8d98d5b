//! Tests that may be skipped where every test is requested.

/// Variable with which a skipped test has failed, except for tests in [`EXPECTED`].
const EVERY_TEST: &str = "EVERY_TEST";

/// Start of the full name, and the reason.
const EXPECTED: [(&str, &str); 5] = [
    ("e2e offload::order::", "takes minutes: run by hand with PACKETS"),
    ("e2e offload::ends::a_permission_without_refresh", "takes minutes: run by hand with E2E_LONG"),
    ("e2e helm::", "wants a program that takes minutes to build: run by `cargo xtask chart`"),
    ("xtask cross::", "wants the other architecture's standard library, from rustup"),
    (
        "e2e offload::stacked::",
        "wants a kernel with bonds, which kernels for virtual machines lack",
    ),
];

/// Returns true if every test is requested.
pub(crate) fn every_test() -> bool {
    std::env::var_os(EVERY_TEST).is_some_and(|value| !value.is_empty())
}

/// Returns true if the test may be skipped where every test is requested.
pub(crate) fn is_expected(full_name: &str) -> bool {
    EXPECTED.iter().any(|(start, _)| full_name.starts_with(start))
}
