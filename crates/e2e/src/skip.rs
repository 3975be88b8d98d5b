//! A test that cannot run here says why, and is counted as skipped by `make test`.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Reports that the calling test was skipped. `make test` reads the line from the file that
/// `TURNPIKE_SKIPS` names; without it the reason is only printed.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("test"));
    eprint!("skipped {line}");
    if let Some(path) = std::env::var_os("TURNPIKE_SKIPS")
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
    {
        // One write of one short line: appends of parallel tests do not mix. A failure only costs
        // the count of skipped tests.
        drop(file.write_all(line.as_bytes()));
    }
}

/// The value, or `None` after saying why the test is skipped.
pub fn require<T>(wanted: Result<T, String>) -> Option<T> {
    match wanted {
        Ok(value) => Some(value),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}
