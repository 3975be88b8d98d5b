//! Files that SQLite opens and removes by their paths.
//!
//! In a directory of another user, root acts as that user for such operations. Otherwise the user
//! could redirect root to any file of the host.

use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use atomic_file::{ActingAsOwner, FileOwner};
use rusqlite::{Connection, OpenFlags, ffi};

/// Suffixes of a database and of the additional files that SQLite opens.
const ENDINGS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Connection that is closed as the owner of the file, because SQLite removes files then.
#[derive(Debug)]
pub(crate) struct OwnersConnection {
    connection: Connection,
    owner: FileOwner,
    /// Identity of the owner, dropped after the connection.
    closing: Option<ActingAsOwner>,
}

impl OwnersConnection {
    /// Wraps a connection that was opened as this owner.
    pub(crate) const fn new(connection: Connection, owner: FileOwner) -> Self {
        Self { connection, owner, closing: None }
    }
}

impl Deref for OwnersConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for OwnersConnection {
    fn drop(&mut self) {
        // On failure, as in a confined server, the connection is closed as root.
        self.closing = self.owner.act().ok();
    }
}

/// Opens an existing database for reading and writing. The caller must already act as the owner.
///
/// # Errors
/// SQLite fails, or an additional file of the database is not a regular file.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    refuse_special(path)?;
    // One thread uses each handle: SQLite's locking of handles is not needed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Converts the error of a file's system call to SQLite's error type.
pub(crate) fn cannot_open(error: &io::Error) -> rusqlite::Error {
    let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}

/// Returns the names of a database and of its additional files.
fn names(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    ENDINGS.iter().map(|ending| {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        PathBuf::from(file)
    })
}

/// Refuses names of pipes and devices: SQLite would wait forever for a writer of the pipe.
fn refuse_special(path: &Path) -> rusqlite::Result<()> {
    let is_special = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| !file.is_file());
    let Some(file) = names(path).find(is_special) else { return Ok(()) };
    let what = format!("{} is no regular file: remove it", file.display());
    Err(cannot_open(&io::Error::new(io::ErrorKind::InvalidInput, what)))
}

/// Refuses files that another user could have created under the names of the database. Necessary
/// where root must remain root: in a directory of root with other writers, and in a confined
/// server.
///
/// # Errors
/// A file is a link, has another name, or is not a regular file.
pub(crate) fn refuse_planted(path: &Path) -> io::Result<()> {
    if !atomic_file::others_may_name_files(path)? {
        return Ok(());
    }
    for file in names(path) {
        let Ok(metadata) = fs::symlink_metadata(&file) else { continue };
        if !metadata.is_file() || metadata.nlink() > 1 {
            let what = format!(
                "{} is a link or no file, and others than root write to its directory: remove it",
                file.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
    }
    Ok(())
}
