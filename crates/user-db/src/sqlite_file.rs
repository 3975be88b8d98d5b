//! Files that SQLite opens and removes by their paths. In a directory of another user root does so
//! as that user, who could otherwise lead root to any file of the host.

use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use atomic_file::{ActingAsOwner, FileOwner};
use rusqlite::{Connection, OpenFlags, ffi};

/// Endings of the names of a database and of the further files that SQLite opens.
const ENDINGS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// A connection that is closed as the owner of its file: SQLite removes files then.
#[derive(Debug)]
pub(crate) struct OwnersConnection {
    connection: Connection,
    owner: FileOwner,
    /// Dropped after the connection.
    closing: Option<ActingAsOwner>,
}

impl OwnersConnection {
    /// Takes a connection over that was opened as this user.
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
        // Otherwise it is closed as root: in a confined server.
        self.closing = self.owner.act().ok();
    }
}

/// Opens an existing database for reading and writing. The caller is its owner already.
///
/// # Errors
/// Errors of SQLite, and a further file of the database that is no regular file.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    refuse_special(path)?;
    // One thread uses each handle: SQLite's locking of handles is not needed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// An error of a file's system call, as SQLite tells it.
pub(crate) fn cannot_open(error: &io::Error) -> rusqlite::Error {
    let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}

/// The names of a database and of its further files.
fn names(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    ENDINGS.iter().map(|ending| {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        PathBuf::from(file)
    })
}

/// Refuses names of pipes and devices: SQLite would wait for the other end of a pipe, for ever.
fn refuse_special(path: &Path) -> rusqlite::Result<()> {
    let is_special = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| !file.is_file());
    let Some(file) = names(path).find(is_special) else { return Ok(()) };
    let what = format!("{} is no regular file: remove it", file.display());
    Err(cannot_open(&io::Error::new(io::ErrorKind::InvalidInput, what)))
}

/// Refuses files that another user could have created under the names of the database, if root
/// must remain root: in a directory of root with other writers, and in a confined server.
///
/// # Errors
/// A file is a link, has another name, or is no regular file.
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
