//! Databases of users.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Written, written};

/// A database of users, written as a URL or, for SQLite, as a path. Another kind is added here, in
/// `turnpike/src/users.rs` and as a file of `user-db`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// An SQLite file: `"sqlite:///srv/users.sqlite"`, or its path.
    Sqlite(PathBuf),
}

impl Database {
    /// The database where none is configured: a file in the data directory.
    pub(crate) fn in_directory(data: &Path) -> Self {
        Self::Sqlite(data.join("users.sqlite"))
    }

    /// The same database, with its path beside `directory`.
    pub(crate) fn beside(&self, directory: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(directory.join(path)),
        }
    }

    /// The file of a database that is one: the server may write to its directory.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
        }
    }
}

impl fmt::Display for Database {
    /// The database in messages, without a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Written for Database {
    const KIND: &'static str = "database";

    fn forms() -> String {
        "write the path of an SQLite file, such as \"/srv/turnpike/users.sqlite\", or \
         \"sqlite:///srv/turnpike/users.sqlite\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("sqlite", path)) if path.starts_with('/') => Ok(Self::Sqlite(path.into())),
            Some(("sqlite", _)) => Err(format!("\"{text}\" has a host name, and SQLite has none")),
            Some((scheme, _)) => Err(format!("{scheme} is not a known kind of database")),
            None if text.is_empty() => Err("the path is empty".to_owned()),
            None => Ok(Self::Sqlite(text.into())),
        }
    }

    fn written(&self) -> Value {
        match self {
            Self::Sqlite(path) => json!(path),
        }
    }
}
written!([] Database);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths() {
        for text in ["sqlite:///srv/u.sqlite", "/srv/u.sqlite"] {
            assert_eq!(Database::parse(text), Ok(Database::Sqlite("/srv/u.sqlite".into())));
        }
        for (text, error) in [
            (
                "sqlite://srv/u.sqlite",
                "\"sqlite://srv/u.sqlite\" has a host name, and SQLite has none",
            ),
            ("mongodb://db.example.org/u", "mongodb is not a known kind of database"),
            ("", "the path is empty"),
        ] {
            assert_eq!(Database::parse(text), Err(error.to_owned()));
        }
    }
}
