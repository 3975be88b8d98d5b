//! Databases of users.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turn_types::Secret;

use super::{Written, written};

/// Schemes of database servers, as in URLs.
const SERVERS: [&str; 9] = [
    "postgresql",
    "postgres",
    "mysql",
    "mariadb",
    "redis",
    "rediss",
    "redis+unix",
    "mongodb",
    "mongodb+srv",
];

/// A database of users, written as a URL or, for SQLite, as a path. Another kind of server is added
/// here and as a file of `user-db`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// An SQLite file: `"sqlite:///srv/users.sqlite"`, or its path.
    Sqlite(PathBuf),
    /// An SQLite file with coturn's tables: `"sqlite-coturn:///var/lib/turn/turndb"`.
    CoturnSqlite(PathBuf),
    /// A database server with coturn's layout, as a URL that may hold a password.
    Server(Secret<String>),
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
            Self::CoturnSqlite(path) => Self::CoturnSqlite(path.clone()),
            Self::Server(url) => Self::Server(url.clone()),
        }
    }

    /// The file of a database that is one: the server may write to its directory.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) | Self::CoturnSqlite(path) => Some(path),
            Self::Server(_) => None,
        }
    }

    /// Returns whether it has coturn's tables or keys, rather than this server's own.
    #[must_use]
    pub const fn has_coturn_layout(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::CoturnSqlite(_) | Self::Server(_) => true,
        }
    }

    /// The URL of a database with coturn's layout; empty for this server's own.
    #[must_use]
    pub fn coturn_url(&self) -> Secret<String> {
        match self {
            Self::Sqlite(_) => Secret::default(),
            Self::CoturnSqlite(_) => Secret::new(self.to_string()),
            Self::Server(url) => url.clone(),
        }
    }

    /// Returns whether it is a Redis server.
    pub(crate) fn is_redis(&self) -> bool {
        match self {
            Self::Sqlite(_) | Self::CoturnSqlite(_) => false,
            Self::Server(url) => {
                let scheme = url.expose().split_once("://").map(|(scheme, _)| scheme);
                matches!(scheme, Some("redis" | "rediss" | "redis+unix"))
            }
        }
    }

    /// Returns whether the text holds a password.
    pub(crate) fn holds_secret(&self) -> bool {
        match self {
            Self::Sqlite(_) | Self::CoturnSqlite(_) => false,
            Self::Server(url) => {
                let options = url.expose().split_once('?').map_or("", |(_, options)| options);
                let is_password = |option: &str| {
                    let (name, _) = option.split_once('=').unwrap_or((option, ""));
                    name.to_ascii_lowercase().contains("pass")
                };
                user_info(url.expose()).is_some_and(|user| user.contains(':'))
                    || options.split('&').any(is_password)
            }
        }
    }
}

/// The part of a URL before its host: a user, and perhaps a password.
fn user_info(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    rest.rsplit_once('@').map(|(user, _)| user)
}

impl fmt::Display for Database {
    /// The database in messages, without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::CoturnSqlite(path) => write!(f, "sqlite-coturn://{}", path.display()),
            Self::Server(url) => {
                let (base, _) = url.expose().split_once('?').unwrap_or((url.expose(), ""));
                let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                write!(f, "{scheme}://{place}")
            }
        }
    }
}

impl Written for Database {
    const KIND: &'static str = "database";

    fn forms() -> String {
        "write the path of an SQLite file, such as \"/srv/turnpike/users.sqlite\", or the URL of a database with \
         coturn's tables, such as \"postgresql://turn@db.example.org/turn\", mysql://, redis://, mongodb:// or \
         \"sqlite-coturn:///var/lib/turn/turndb\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("sqlite", path)) if path.starts_with('/') => Ok(Self::Sqlite(path.into())),
            Some(("sqlite", _)) => Err("it has a host name, and SQLite has none".to_owned()),
            Some(("sqlite-coturn", path)) if path.starts_with('/') => {
                Ok(Self::CoturnSqlite(path.into()))
            }
            Some(("sqlite-coturn", _)) => {
                Err("it has no whole path, as sqlite-coturn:///var/lib/turn/turndb".to_owned())
            }
            Some((scheme, _)) if SERVERS.contains(&scheme) => {
                Ok(Self::Server(Secret::new(text.to_owned())))
            }
            Some((scheme, _)) => Err(format!("{scheme} is not a known kind of database")),
            None if text.is_empty() => Err("the path is empty".to_owned()),
            None if text.contains("password=") => {
                Err("words as in coturn's options are not taken: write a URL".to_owned())
            }
            // A mistyped URL may have a password: it is not shown.
            None => match mistyped_scheme(text) {
                Some(scheme) => Err(format!(
                    "it begins as a URL, which has {scheme}://; the path of a file may begin with ./"
                )),
                None if text.contains('@') && !text.starts_with(['/', '.']) => {
                    Err("it reads as a URL without its kind, such as postgresql://; the path of a file may begin \
                         with ./"
                        .to_owned())
                }
                None => Ok(Self::Sqlite(text.into())),
            },
        }
    }

    /// As in a file, for comparisons and for operators: a password is left out.
    fn written(&self) -> Value {
        match self {
            Self::Sqlite(path) => json!(path),
            Self::CoturnSqlite(_) | Self::Server(_) => json!(self.to_string()),
        }
    }
}
written!([] Database);

/// Scheme of a text that lacks a character of `scheme://`. As a path, the text would create an
/// empty database.
fn mistyped_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_at(text.find([':', '/'])?);
    let is_known = SERVERS.contains(&scheme) || matches!(scheme, "sqlite" | "sqlite-coturn");
    (is_known && (rest.starts_with(':') || rest.starts_with("//"))).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths() {
        for text in ["sqlite:///srv/u.sqlite", "/srv/u.sqlite"] {
            assert_eq!(Database::parse(text), Ok(Database::Sqlite("/srv/u.sqlite".into())));
        }
        for text in
            ["sqlite-coturn:/var/lib/turn/turndb", "sqlite:u", "postgresql//x/y", "redis:/x"]
        {
            let error = Database::parse(text).unwrap_err();
            assert!(error.contains("begins as a URL"), "{error}");
        }
        for text in ["postgresql:/u:PASS@db/t", "turn:PASS@db.example/t", "sqlite://u:PASS@db"] {
            let error = Database::parse(text).unwrap_err();
            assert!(!error.contains("PASS"), "{error}");
        }
        for text in ["redis/users.sqlite", "./sqlite:u", "users:old.sqlite", "/srv/a@b/u"] {
            assert_eq!(Database::parse(text), Ok(Database::Sqlite(text.into())));
        }
        let coturn = Database::parse("sqlite-coturn:///var/lib/turn/turndb").unwrap();
        assert!(coturn.has_coturn_layout() && coturn.file().is_some());
        assert_eq!(coturn.coturn_url().expose(), "sqlite-coturn:///var/lib/turn/turndb");
        assert!(Database::parse("sqlite-coturn://turndb").is_err());
        for (text, error) in [
            ("sqlite://srv/u.sqlite", "it has a host name, and SQLite has none"),
            ("oracle://db.example.org/u", "oracle is not a known kind of database"),
            ("", "the path is empty"),
            ("host=db password=pw", "words as in coturn's options are not taken: write a URL"),
        ] {
            assert_eq!(Database::parse(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let url = "postgresql://turn:p@ss/word@db.example.org/turn?sslmode=disable";
        let database = Database::parse(url).unwrap();
        assert_eq!(database.to_string(), "postgresql://db.example.org/turn");
        assert_eq!(database.written(), json!("postgresql://db.example.org/turn"));
        assert!(!format!("{database:?}").contains("ss/word"));
        assert!(database.holds_secret());
        assert!(!Database::parse("redis://localhost/0").unwrap().holds_secret());
        assert!(Database::parse("postgresql://db/turn?password=pw").unwrap().holds_secret());
    }
}
