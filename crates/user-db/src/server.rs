//! Opening of the database of a URL.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::coturn::{CoturnDatabase, CoturnEditor, CoturnReader};
use crate::endpoint::Endpoint;
use crate::error::StoreError;
#[cfg(feature = "mongodb")]
use crate::limits::{CONNECT_WITHIN, SELECT_WITHIN};
use crate::limits::{CONNECTIONS, CONNECTIONS_TABLES};
use crate::server_url::ServerUrl;
use crate::sqlite_coturn::{self, SCHEME, SqliteCoturn};
use crate::store::{UserEditor, UserReader};
use crate::table::{Row, Table};

/// Opens users in coturn's layout for look-ups, by a URL: `postgresql://`, `mysql://`, `redis://`,
/// `mongodb://` or `sqlite-coturn://`. Does not wait for the network.
///
/// # Errors
/// Fails for the reasons of [`check_url`].
pub fn server_reader(url: &str) -> Result<Box<dyn UserReader>, StoreError> {
    Ok(Box::new(CoturnReader::new(open(url, Purpose::Look)?)))
}

/// Opens users in coturn's layout for changes, by a URL as for [`server_reader`]. Does not wait for
/// the network.
///
/// # Errors
/// Fails for the reasons of [`check_url`].
pub fn server_editor(url: &str) -> Result<Box<dyn UserEditor>, StoreError> {
    Ok(Box::new(CoturnEditor::new(open(url, Purpose::Change)?)?))
}

/// Opens coturn's other tables for changes, by a URL as for [`server_reader`]. Does not wait for
/// the network.
///
/// # Errors
/// Fails for the reasons of [`check_url`].
pub fn server_tables(url: &str) -> Result<TableEditor, StoreError> {
    Ok(TableEditor(CoturnEditor::new(open(url, Purpose::Change)?)?))
}

/// Creates the SQLite file of a URL with coturn's tables, or adds the missing tables. For coturn's
/// `turnadmin`. Databases of other kinds are not changed. Blocks the caller.
///
/// # Errors
/// The file cannot be created or changed.
pub fn create_file(url: &str) -> Result<(), StoreError> {
    match url.split_once("://") {
        Some((SCHEME, path)) => sqlite_coturn::create(Path::new(path)),
        _ => Ok(()),
    }
}

/// Changes and lists of coturn's tables other than the user table. All functions block.
///
/// # Errors
/// All functions return errors of the database.
pub struct TableEditor(CoturnEditor);

impl TableEditor {
    /// Returns sorted rows of a table, at most `limit` + 1.
    pub fn rows(&self, table: Table, limit: u32) -> Result<Vec<Row>, StoreError> {
        self.0.rows(table, limit)
    }

    /// Adds a row, or replaces the row with the same key.
    pub fn put(&self, table: Table, row: Row) -> Result<(), StoreError> {
        self.0.put(table, row)
    }

    /// Deletes the rows with these values of the first key columns.
    pub fn remove(&self, table: Table, key: Row) -> Result<(), StoreError> {
        self.0.remove(table, key)
    }
}

impl fmt::Debug for TableEditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableEditor").finish_non_exhaustive()
    }
}

/// Checks a URL of a database server without connecting.
///
/// # Errors
/// The URL is invalid, a file named in the URL cannot be read, or this program was built without
/// this kind of database.
pub fn check_url(text: &str) -> Result<(), StoreError> {
    open(text, Purpose::Look).map(drop)
}

/// Returns the remote hosts to which connections of a URL are unencrypted, including names, keys
/// and password. The decision uses the driver's parsed settings. Does not wait for the network.
///
/// # Errors
/// Fails for the reasons of [`check_url`].
pub fn clear_hosts(text: &str) -> Result<Vec<String>, StoreError> {
    if text.starts_with(SCHEME) {
        return Ok(Vec::new());
    }
    let url = ServerUrl::parse(text)?;
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let endpoints: Vec<Endpoint> = match scheme {
        #[cfg(feature = "postgresql")]
        "postgresql" | "postgres" => crate::postgres::endpoints(&crate::postgres::config(&url)?),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => vec![crate::mysql::endpoint(&crate::mysql::options(&url)?)],
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" => {
            vec![crate::redis_server::endpoint(&crate::redis_server::info(&url)?)]
        }
        #[cfg(feature = "mongodb")]
        "mongodb" | "mongodb+srv" => crate::mongo::endpoints(&url)?,
        _ => Err(not_built_in(&url, scheme))?,
    };
    Ok(url.clear_hosts(&endpoints))
}

/// Purpose of opening a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Look-ups for the server.
    Look,
    /// Reading of tables, one statement after the other.
    Read,
    /// Changes and lists for commands. An SQLite file also gets the tables that an older coturn did
    /// not create.
    Change,
}

/// Opens the database of a URL. Does not wait for the network.
pub(crate) fn open(text: &str, purpose: Purpose) -> Result<Arc<dyn CoturnDatabase>, StoreError> {
    if let Some((SCHEME, path)) = text.split_once("://") {
        let file = SqliteCoturn::new(Path::new(path), purpose == Purpose::Change)?;
        return Ok(Arc::new(file));
    }
    let url = ServerUrl::parse(text)?;
    let connections = match purpose {
        Purpose::Look => CONNECTIONS,
        Purpose::Read | Purpose::Change => CONNECTIONS_TABLES,
    };
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "postgresql")]
        "postgresql" | "postgres" => {
            Ok(Arc::new(crate::postgres::Postgres::new(url, connections)?))
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(crate::mysql::Mysql::new(url, connections)?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" => Ok(Arc::new(crate::redis_server::Redis::new(url)?)),
        #[cfg(feature = "mongodb")]
        "mongodb" | "mongodb+srv" => {
            let selection = if purpose == Purpose::Look { SELECT_WITHIN } else { CONNECT_WITHIN };
            Ok(Arc::new(crate::mongo::Mongo::new(url, connections, selection)?))
        }
        _ => Err(not_built_in(&url, scheme)),
    }
}

fn not_built_in(url: &ServerUrl, scheme: &str) -> StoreError {
    match feature(scheme) {
        Some(name) => url.failed(format_args!(
            "this program was built without the feature \"{name}\": build it with \
             `cargo build --release -p turnpike --features {name}`"
        )),
        None => url.failed(format_args!("{scheme} is not a known kind of database")),
    }
}

/// Returns the cargo feature, of this crate and of `turnpike`, that a scheme requires.
fn feature(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "postgresql" | "postgres" => "postgresql",
        "mysql" | "mariadb" => "mysql",
        "redis" | "rediss" | "redis+unix" => "redis",
        "mongodb" | "mongodb+srv" => "mongodb",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "mongodb"))]
    fn a_kind_that_is_not_built_in_names_its_feature() {
        for url in ["mongodb://turn:hush@db/turn", "mongodb+srv://turn:hush@db/turn"] {
            let error = check_url(url).unwrap_err().to_string();
            assert!(error.contains("-p turnpike --features mongodb"), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    /// Host, and true for an unencrypted connection, as the URL demands.
    #[test]
    #[cfg(all(feature = "postgresql", feature = "mysql", feature = "redis"))]
    fn nothing_leaves_this_host_in_clear_unless_the_url_says_so() {
        const DB: &[&str] = &["db.example.org"];
        for (url, clear) in [
            ("postgresql://turn:x@127.0.0.1/turn", &[][..]),
            ("postgresql://turn:x@[::1]:5433/turn", &[]),
            ("postgresql://turn:x@%2Frun%2Fpostgresql/turn", &[]),
            ("postgresql://turn:x@/turn?host=%2Frun%2Fpostgresql", &[]),
            ("postgresql://turn:x@db.example.org/turn", &[]),
            ("postgres://turn:x@/turn?host=db.example.org", &[]),
            ("postgres://turn:x@localhost/turn?hostaddr=192.0.2.7", &[]),
            ("postgres://turn:x@/turn?host=db.example.org&sslmode=disable", DB),
            ("postgres://turn:x@localhost/turn?hostaddr=192.0.2.7&sslmode=disable", &["192.0.2.7"]),
            ("postgres://turn:x@localhost,db.example.org/turn?sslmode=disable", DB),
            ("mysql://turn:x@localhost/turn", &[]),
            ("mysql://turn:x@db.example.org/turn", &[]),
            ("mysql://turn:x@db.example.org/turn?sslmode=disable", DB),
            ("mysql://turn:x@db.example.org/turn?socket=%2Frun%2Fmysql&sslmode=disable", &[]),
            ("redis://db.example.org", DB),
            ("redis://:x@[2001:db8::7]:6380/1", &["2001:db8::7"]),
            ("redis://127.0.0.1/0", &[]),
            ("rediss://db.example.org", &[]),
            ("rediss://db.example.org?sslmode=disable", DB),
            ("redis+unix:///run/redis", &[]),
            ("sqlite-coturn:///var/lib/turn/turndb", &[]),
        ] {
            assert_eq!(clear_hosts(url).unwrap(), clear, "{url}");
        }
        let insecure = check_url("rediss://db.example.org/#insecure").unwrap_err().to_string();
        assert!(insecure.contains("#insecure is not offered"), "{insecure}");
    }

    #[test]
    fn a_scheme_that_nothing_has_is_named() {
        let error = check_url("oracle://db/turn").unwrap_err().to_string();
        assert!(error.contains("oracle is not a known kind of database"), "{error}");
    }
}
