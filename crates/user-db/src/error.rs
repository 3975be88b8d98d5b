//! Errors of users and their stores.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Error of a store. Texts are for operators: the error, and advice.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The name is invalid.
    #[error("the name {what}")]
    Name {
        /// The error, as the end of "the name ...".
        what: String,
    },
    /// The realm is invalid.
    #[error("the realm {what}")]
    Realm {
        /// The error.
        what: String,
    },
    /// The password is invalid.
    #[error("the password {what}")]
    Password {
        /// The error; never the password.
        what: String,
    },
    /// There is such a user already.
    #[error("there is a user \"{name}\" in realm \"{realm}\" already")]
    Exists {
        /// The name.
        name: String,
        /// The realm.
        realm: String,
    },
    /// The file or its directory could not be made or read.
    #[error("{}: {source}; the directory needs to belong to the user that the server runs as", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Others may read the file, and with it every user's key.
    #[error("{}: other users of this host can read it (mode {mode:03o}); run `chmod 600` on it, and replace its users if one may have", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file was written by a newer version.
    #[error("{}: its format is version {found}, and this program knows version {known}; use a newer turnpike", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version this program writes.
        known: i64,
    },
    /// The file is something else.
    #[error("{}: this is not a user database; move it away, or name another directory", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database did not answer in time.
    #[error("the user database did not answer within {} ms", .within.as_millis())]
    TimedOut {
        /// The deadline of a look-up.
        within: Duration,
    },
    /// The system has no thread left for look-ups.
    #[error("cannot start the threads of user look-ups: {0}")]
    Threads(std::io::Error),
    /// Too many look-ups wait for the database.
    #[error("too many look-ups wait for the user database")]
    Overloaded,
    /// Another process holds the database for too long.
    #[error("{}: another process has been writing to it for {} s; find out which (`fuser`), or try again", path.display(), crate::limits::BUSY_TIMEOUT.as_secs())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Any other error of the database: disk full, read-only, damaged.
    #[error("{}: {what}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Its message.
        what: String,
    },
}
