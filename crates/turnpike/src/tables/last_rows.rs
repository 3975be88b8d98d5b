//! Rows of the tables as last read, for a successor process.
//!
//! The successor's database may be unreachable. Without these rows the successor would lack the
//! realms, secrets and keys of the tables until the database responds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use state_format::fields;
use turn_types::Secret;
use user_db::{Row, Table};

/// Rows of the tables of one database.
#[derive(Clone)]
pub(crate) struct LastRows {
    /// Hash of the database's URL and the names of the tables. Rows of other tables, or of another
    /// database, are unusable.
    tables: Secret<[u8; 32]>,
    /// Rows with the names of their tables. Rows may contain secrets.
    rows: Arc<[(String, Row)]>,
}

fields!(LastRows { 1 => tables, 2 => rows });

impl LastRows {
    pub(crate) fn new(tables: Secret<[u8; 32]>, rows: &[(Table, Row)]) -> Self {
        let named = rows.iter().map(|(table, row)| (table.name().to_owned(), row.clone()));
        Self { tables, rows: named.collect() }
    }

    /// Returns the rows if they belong to these tables.
    pub(crate) fn of(&self, tables: Secret<[u8; 32]>) -> Option<Vec<(Table, Row)>> {
        if self.tables != tables {
            return None;
        }
        let table_of = |name: &str| Table::ALL.into_iter().find(|table| table.name() == name);
        let rows = self.rows.iter().map(|(name, row)| Some((table_of(name)?, row.clone())));
        rows.collect()
    }
}

/// Compares by identity, because equal rows are the same reading. The time does not depend on the
/// number of rows.
impl PartialEq for LastRows {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables && Arc::ptr_eq(&self.rows, &other.rows)
    }
}

impl Eq for LastRows {}

impl fmt::Debug for LastRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows", self.rows.len())
    }
}

/// Hashes the names of tables and the URL of their database, which may contain a password.
pub(super) fn identity(url: &str, tables: &[Table]) -> Secret<[u8; 32]> {
    let mut hash = Sha256::new_with_prefix(url);
    for table in tables {
        hash.update(b"\n");
        hash.update(table.name());
    }
    Secret::new(hash.finalize().into())
}

/// Shared cell with the rows that were read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRead(Arc<Mutex<Option<LastRows>>>);

impl LastRead {
    pub(crate) fn get(&self) -> Option<LastRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, rows: LastRows) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rows);
    }
}
