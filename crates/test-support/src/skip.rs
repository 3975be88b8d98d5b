//! Tests that cannot run here: each gives its reason and counts as skipped, not as passed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Names of tests that were reported already: one that lacks several things counts once.
static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reports that the calling test, or part of it, cannot run here: one line in the file that
/// `SKIPPED_TESTS` names, which `make test` counts; without that variable the reason is only
/// printed.
///
/// # Panics
/// When the file cannot be written: a skip must not pass for a success.
pub fn skip(reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // Reasons of tools have line ends; a skip is one line.
    let reason = format!("{reason:#}").split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("skipped {test}: {reason}");
    if !REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(test.to_owned()) {
        return;
    }
    if let Some(path) = std::env::var_os("SKIPPED_TESTS") {
        let mut file =
            OpenOptions::new().append(true).create(true).open(path).expect("a writable file");
        // One write of one short line: appends of parallel tests do not mix.
        file.write_all(format!("{test}: {reason}\n").as_bytes())
            .expect("room in the file of skips");
    }
}

/// The value, or `None` after [`skip`] with the error as the reason.
pub fn require<T, E: Display>(wanted: Result<T, E>) -> Option<T> {
    wanted.map_err(skip).ok()
}
