//! What tests of this crate share.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The value, or `None` after saying why the calling test is skipped: also in the file that
/// `TURNPIKE_SKIPS` names, from which `make test` counts.
pub(crate) fn require<T>(wanted: anyhow::Result<T>) -> Option<T> {
    let error = match wanted {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let line = format!("{}: {error:#}\n", std::thread::current().name().unwrap_or("test"));
    eprint!("skipped {line}");
    if let Some(path) = std::env::var_os("TURNPIKE_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        // One write of one short line: appends of parallel tests do not mix.
        file.write_all(line.as_bytes()).unwrap();
    }
    None
}
