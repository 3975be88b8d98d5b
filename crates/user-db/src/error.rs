//! What can go wrong with users and with where they are kept.

use std::path::PathBuf;

use thiserror::Error;

/// Why a store did not do what it was asked. Texts are for operators: what, and what to do.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The name cannot be one.
    #[error("the name {what}")]
    Name {
        /// What is wrong with it, as the end of "the name ...".
        what: String,
    },
    /// The realm cannot be one.
    #[error("the realm {what}")]
    Realm {
        /// What is wrong with it.
        what: String,
    },
    /// The password cannot be one.
    #[error("the password {what}")]
    Password {
        /// What is wrong with it; never the password.
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
        /// What the system says.
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
    /// Another process holds the database for too long.
    #[error("{}: another process has been writing to it for {} s; find out which (`fuser`), or try again", path.display(), crate::limits::BUSY_TIMEOUT.as_secs())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Anything else that the database says: disk full, read-only, damaged.
    #[error("{}: {what}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it says.
        what: String,
    },
}
