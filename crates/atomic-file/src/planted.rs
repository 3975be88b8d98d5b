//! Files that another user may have put into a directory.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Refuses a file with several names. Another name may be in a directory of another user.
pub(crate) fn refuse_names(metadata: &Metadata) -> io::Result<()> {
    if metadata.nlink() == 1 {
        return Ok(());
    }
    Err(foreign("it has several names (hard links)"))
}

/// Error about such a file.
pub(crate) fn foreign(what: &str) -> io::Error {
    let advice = "other users may write to its directory, and may have put it there; remove it";
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{what}: {advice}"))
}
