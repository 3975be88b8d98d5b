//! Files that SQLite opens and removes by their paths. In a directory of another user root does so
//! as that user, who could otherwise lead root to any file of the host.

use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use atomic_file::{ActingAsOwner, FileOwner};
use rusqlite::{Connection, OpenFlags};

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
/// Errors of SQLite.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    // One thread uses each handle: SQLite's locking of handles is not needed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
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
    for ending in ENDINGS {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        let file = PathBuf::from(file);
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
