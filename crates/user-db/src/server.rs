//! Opens the database server of a URL.

use std::fmt;
use std::sync::Arc;

use crate::coturn::{CoturnDatabase, CoturnEditor, CoturnReader};
use crate::error::StoreError;
use crate::limits::{CONNECTIONS, CONNECTIONS_TABLES};
use crate::server_url::ServerUrl;
use crate::store::{UserEditor, UserReader};
use crate::table::{Row, Table};

/// Opens users in coturn's layout for look-ups, by a URL: `postgresql://`, `mysql://` or `redis://`. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_reader(url: &str) -> Result<Box<dyn UserReader>, StoreError> {
    Ok(Box::new(CoturnReader::new(open(url, CONNECTIONS)?)))
}

/// Opens users in coturn's layout for changes, by a URL as [`server_reader`]. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_editor(url: &str) -> Result<Box<dyn UserEditor>, StoreError> {
    Ok(Box::new(CoturnEditor::new(open(url, CONNECTIONS)?)?))
}

/// Opens coturn's other tables for changes, by a URL as [`server_reader`]. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_tables(url: &str) -> Result<TableEditor, StoreError> {
    Ok(TableEditor(CoturnEditor::new(open(url, CONNECTIONS_TABLES)?)?))
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
    open(text, CONNECTIONS).map(drop)
}

/// Opens the database of a URL with that many connections for look-ups.
pub(crate) fn open(text: &str, connections: usize) -> Result<Arc<dyn CoturnDatabase>, StoreError> {
    let url = ServerUrl::parse(text)?;
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
