//! Opens the database of a URL.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::coturn::{CoturnDatabase, CoturnEditor, CoturnReader};
use crate::error::StoreError;
use crate::limits::{CONNECTIONS, CONNECTIONS_TABLES};
use crate::server_url::ServerUrl;
use crate::sqlite_coturn::{SCHEME, SqliteCoturn};
use crate::store::{UserEditor, UserReader};
use crate::table::{Row, Table};

/// Opens users in coturn's layout for look-ups, by a URL: `postgresql://`, `mysql://`, `redis://` or
/// `sqlite-coturn://`. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_reader(url: &str) -> Result<Box<dyn UserReader>, StoreError> {
    Ok(Box::new(CoturnReader::new(open(url, Purpose::Look)?)))
}

/// Opens users in coturn's layout for changes, by a URL as [`server_reader`]. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_editor(url: &str) -> Result<Box<dyn UserEditor>, StoreError> {
    Ok(Box::new(CoturnEditor::new(open(url, Purpose::Change)?)?))
}

/// Opens coturn's other tables for changes, by a URL as [`server_reader`]. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_tables(url: &str) -> Result<TableEditor, StoreError> {
    Ok(TableEditor(CoturnEditor::new(open(url, Purpose::Change)?)?))
}

/// Changes and lists the tables of coturn's layout besides that of users. It blocks.
///
/// # Errors
/// Errors of the database, in all functions.
pub struct TableEditor(CoturnEditor);

impl TableEditor {
    /// Rows of a table, sorted; at most `limit` and one more.
    pub fn rows(&self, table: Table, limit: u32) -> Result<Vec<Row>, StoreError> {
        self.0.rows(table, limit)
    }

    /// Adds a row, or replaces the one with its key.
    pub fn put(&self, table: Table, row: Row) -> Result<(), StoreError> {
        self.0.put(table, row)
    }

    /// Deletes the rows with these values of the first columns of the key.
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
/// The URL is not one, a file that it names cannot be read, or this program was built without this kind of database.
pub fn check_url(text: &str) -> Result<(), StoreError> {
    open(text, Purpose::Look).map(drop)
}

/// Use of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Look-ups for the server.
    Look,
    /// Reading of tables, one statement after the other.
    Read,
    /// Changes and lists of commands: a file that is not there is made.
    Change,
}

/// Opens the database of a URL. Waits for no network.
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
    match text.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "postgresql")]
        Some("postgresql" | "postgres") => {
            Ok(Arc::new(crate::postgres::Postgres::new(url, connections)?))
        }
        #[cfg(feature = "mysql")]
        Some("mysql" | "mariadb") => Ok(Arc::new(crate::mysql::Mysql::new(url, connections)?)),
        #[cfg(feature = "redis")]
        Some("redis" | "rediss" | "redis+unix") => {
            Ok(Arc::new(crate::redis_server::Redis::new(url)?))
        }
        _ => Err(url.failed(format_args!(
            "this program was built without this kind of database (cargo features of user-db)"
        ))),
    }
}
