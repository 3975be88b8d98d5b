//! Rules from the tables of a user database. A dedicated thread reads the tables, and changed rules
//! take effect as in a reload.

mod last_rows;
pub(crate) mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use settings::{DatabaseRules, DatabaseTable, Settings};
use tokio::time::Instant;
use turn_types::Secret;
use user_db::{Reading, Row, StoreError, Table, TableWatch, TableWatchOptions};

pub(crate) use self::last_rows::{LastRead, LastRows};

use self::last_rows::identity;
use self::rules::Found;

/// Interval of warnings while the tables cannot be read.
const WARNING_EVERY: Duration = Duration::from_secs(60);

/// Maximum time of the first reading before the server serves.
const FIRST_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of warnings about rows that are logged together. A table can have many such rows.
const TOLD_MAX: usize = 8;

/// Maximum number of rows that a command reads from a table, equal to the server's limit.
pub(crate) const ROWS_MAX: u32 = 16_384;

/// Reads the rows of a configuration's tables. Blocks.
fn read_once(settings: &Settings) -> Result<Vec<(Table, Row)>, StoreError> {
    let wanted = tables_of(settings);
    let tables = user_db::server_tables(settings.user_database().coturn_url().expose())?;
    let mut rows = Vec::new();
    for table in wanted {
        rows.extend(tables.rows(table, ROWS_MAX)?.into_iter().map(|row| (table, row)));
    }
    Ok(rows)
}

/// Returns the tables that a configuration reads.
fn tables_of(settings: &Settings) -> Vec<Table> {
    let of = |table: &DatabaseTable| match table {
        DatabaseTable::Realms => &[Table::Origins, Table::Options][..],
        DatabaseTable::Peers => &[Table::AllowedPeers, Table::DeniedPeers],
        DatabaseTable::Secrets => &[Table::Secrets],
        DatabaseTable::Tokens => &[Table::TokenKeys],
    };
    let mut tables: Vec<Table> = settings.database_tables().iter().flat_map(of).copied().collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Tables of a database, with the rows and rules known from them.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    watch: Option<TableWatch>,
    /// True if the tables contain rules for peers.
    has_peers: bool,
    /// Value of `compatibility.short_secrets`.
    short_secrets: bool,
    rows: Option<Arc<Vec<(Table, Row)>>>,
    /// Next time at which a key's validity starts or expires.
    due: Option<SystemTime>,
    /// Rules that are not in effect yet.
    waiting: Option<DatabaseRules>,
    /// Logged warnings about rows that still exist.
    told: BTreeSet<String>,
    failing: Option<Failing>,
    /// Identity of the tables and their database.
    identity: Secret<[u8; 32]>,
    last_read: LastRead,
}

impl Tables {
    /// Creates the tables of a configuration, without reading them.
    pub(crate) fn of(settings: &Settings) -> Self {
        let tables = tables_of(settings);
        if tables.is_empty() {
            return Self::default();
        }
        let identity = identity(settings.user_database().coturn_url().expose(), &tables);
        let has_peers = settings.database_tables().contains(&DatabaseTable::Peers);
        let short_secrets = settings.compatibility.short_secrets;
        Self { has_peers, short_secrets, identity, ..Self::default() }
    }

    /// Adopts the rows that the predecessor read last, unless they belong to other tables. These
    /// rows apply until the first reading.
    pub(crate) fn go_on_from(&mut self, before: &LastRows) {
        if let Some(rows) = before.of(self.identity) {
            self.put(Arc::new(rows));
        }
    }

    /// Puts rules into effect until the first reading: the predecessor's rules, or none.
    pub(crate) fn put_first_rules(&mut self, settings: &mut Settings) -> Result<(), String> {
        if let Some(known) = &self.waiting {
            match settings.put_database_rules(known.clone()) {
                Ok(()) => {
                    self.accept();
                    return Ok(());
                }
                Err(why) => tracing::error!("{why}: the rules of the process before are not used"),
            }
            self.refuse();
            self.rows = None;
        }
        let tables = settings.database_tables();
        let is_unread = tables.contains(&DatabaseTable::Peers);
        let is_incomplete = tables.iter().any(|table| *table != DatabaseTable::Peers);
        let none = DatabaseRules { is_unread, is_incomplete, ..DatabaseRules::default() };
        settings.put_database_rules(none)
    }

    /// Reads the tables of a configuration once, and returns the rules. Blocks.
    ///
    /// # Errors
    /// The database cannot be opened or read.
    pub(crate) fn read(settings: &Settings) -> Result<DatabaseRules, StoreError> {
        if tables_of(settings).is_empty() {
            return Ok(DatabaseRules::default());
        }
        let rows = read_once(settings)?;
        Ok(rules::of(&rows, SystemTime::now(), settings.compatibility.short_secrets).rules)
    }

    /// Reads the tables before the server serves, if the database responds soon. The rules then
    /// apply to the first clients.
    pub(crate) async fn read_first(&mut self, settings: &Settings) {
        if tables_of(settings).is_empty() {
            return;
        }
        let settings = settings.clone();
        let reading = tokio::task::spawn_blocking(move || read_once(&settings));
        if let Ok(Ok(Ok(rows))) = tokio::time::timeout(FIRST_WITHIN, reading).await {
            self.put(Arc::new(rows));
        }
    }

    /// Starts the thread that reads the tables of a configuration.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn watch(&mut self, settings: &Settings) -> Result<(), StoreError> {
        let tables = tables_of(settings);
        if !tables.is_empty() {
            let url = settings.user_database().coturn_url();
            let watch = TableWatch::start(url.expose(), tables, TableWatchOptions::default())?;
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// Returns the cell with the rows for the successor.
    pub(crate) fn last_read(&self) -> LastRead {
        self.last_read.clone()
    }

    /// Waits for the next reading that differs. Without tables, never returns. Cancellation safe.
    pub(crate) async fn changed(&mut self) -> Reading {
        match &mut self.watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Records a reading. New rows become pending rules.
    pub(crate) fn take(&mut self, reading: Reading) {
        match (reading.failure, &mut self.failing) {
            (Some(error), Some(failing)) => failing.error = error,
            (Some(error), None) => self.failing = Some(Failing { error, warned: None }),
            (None, Some(_)) => {
                self.failing = None;
                tracing::info!("the tables of the user database are read again");
            }
            (None, None) => {}
        }
        if let Some(rows) = reading.rows
            && self.rows.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &rows))
        {
            self.put(rows);
        }
        self.look();
    }

    fn put(&mut self, rows: Arc<Vec<(Table, Row)>>) {
        self.rows = Some(rows);
        self.judge(SystemTime::now());
    }

    /// Logs a warning about a lasting failure, and follows the validity of keys.
    pub(crate) fn look(&mut self) {
        if self.due.is_some_and(|due| SystemTime::now() >= due) {
            self.judge(SystemTime::now());
        }
        let (now, meanwhile) = (Instant::now(), self.meanwhile());
        if let Some(failing) = &mut self.failing
            && failing.warned.is_none_or(|warned| now.duration_since(warned) >= WARNING_EVERY)
        {
            failing.warned = Some(now);
            tracing::warn!(
                "the tables of the user database cannot be read ({}): {meanwhile}",
                failing.error
            );
        }
    }

    /// Describes the rules in effect while the tables cannot be read.
    const fn meanwhile(&self) -> &'static str {
        match (&self.rows, self.has_peers) {
            (Some(_), _) => "their last known rules stay in force",
            (None, true) => "until they are, no peer may be reached but those of peers.allow",
            (None, false) => {
                "until they are, credentials that they may prove get 500, and none of their rules are in force"
            }
        }
    }

    /// Describes the failure of the last reading, and the rules in effect until the next success.
    pub(crate) fn failure(&self) -> Option<String> {
        let failing = self.failing.as_ref()?;
        Some(format!("{}: {}", failing.error, self.meanwhile()))
    }

    /// Returns the rules that are not in effect yet.
    pub(crate) const fn waiting(&self) -> Option<&DatabaseRules> {
        self.waiting.as_ref()
    }

    /// Records that the pending rules are in effect. Their rows are passed to the successor.
    pub(crate) fn accept(&mut self) {
        self.waiting = None;
        if let Some(rows) = &self.rows {
            self.last_read.set(LastRows::new(self.identity, rows));
        }
    }

    /// Discards pending rules that are invalid. The previous rules remain in effect, also in the
    /// successor.
    pub(crate) fn refuse(&mut self) {
        self.waiting = None;
    }

    fn judge(&mut self, now: SystemTime) {
        let Some(rows) = &self.rows else { return };
        let Found { rules, warnings, due, .. } = rules::of(rows, now, self.short_secrets);
        let news: Vec<&String> = warnings.difference(&self.told).collect();
        for warning in news.iter().take(TOLD_MAX) {
            tracing::warn!("a row of the user database is not used: {warning}");
        }
        if news.len() > TOLD_MAX {
            tracing::warn!("{} more rows of the user database are not used", news.len() - TOLD_MAX);
        }
        self.told = warnings;
        self.due = due;
        self.waiting = Some(rules);
    }
}

/// Failure of the last readings.
#[derive(Debug)]
struct Failing {
    error: Arc<StoreError>,
    /// Time of the last warning.
    warned: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Environment;

    use super::*;

    #[test]
    fn tables_that_were_not_read_are_not_empty() {
        let before = |tables: &str| {
            let text = format!(
                "users = {{ database = 'redis://127.0.0.1/0', database_tables = {tables} }}"
            );
            let settings = settings::parse(Path::new("t.toml"), &text, &Environment::empty());
            let mut settings = settings.unwrap();
            Tables::of(&settings).put_first_rules(&mut settings).unwrap();
            let rules = settings.database_rules();
            (rules.is_unread, rules.is_incomplete)
        };
        assert_eq!(before("[]"), (false, false));
        assert_eq!(before("['peers']"), (true, false));
        for table in ["realms", "secrets", "tokens"] {
            assert_eq!(before(&format!("['{table}']")), (false, true), "{table}");
        }
    }

    /// Covers a process that starts in an outage, and uses the rules of the predecessor.
    #[test]
    fn rows_of_the_process_before_count_until_the_first_reading() {
        let tables = |url: &str, tables: &[Table]| Tables {
            identity: identity(url, tables),
            ..Tables::default()
        };
        let url = "redis://127.0.0.1/0";
        let secret = |value: &str| (Table::Secrets, vec!["a".to_owned(), value.to_owned()]);
        let reading = |value| Reading {
            rows: Some(Arc::new(vec![secret(value)])),
            failure: None,
            readings: 1,
        };
        let mut before = tables(url, &[Table::Secrets]);
        before.take(reading("0123456789abcdef"));
        assert!(before.last_read().get().is_none(), "it is not in force yet");
        before.accept();
        before.take(reading("refused"));
        before.refuse();
        let rows = before.last_read().get().unwrap();
        let rows: LastRows = state_format::Bytes::of(&rows).parse().unwrap();

        let mut next = tables(url, &[Table::Secrets]);
        next.go_on_from(&rows);
        let secret_of = |tables: &Tables| tables.waiting().unwrap().realms["a"].secrets.clone();
        let inherited = secret_of(&next);
        assert_eq!(inherited.len(), 1);
        next.accept();
        assert!(next.last_read().get().is_some(), "and the process behind it as well");
        next.take(reading("another secret 16"));
        assert_ne!(secret_of(&next), inherited);
        for mut other in [
            tables("redis://127.0.0.1/1", &[Table::Secrets]),
            tables(url, &[Table::Secrets, Table::DeniedPeers]),
            tables(url, &[]),
        ] {
            other.go_on_from(&rows);
            assert!(other.waiting().is_none(), "missing rows are not taken for empty tables");
        }
    }

    /// Covers overloaded and unreachable databases, a table beyond the limit, and an empty table.
    #[test]
    fn no_failure_is_taken_for_an_empty_table() {
        let failures = || {
            let within = Duration::from_secs(10);
            let table = Table::DeniedPeers.name();
            [
                StoreError::Overloaded,
                StoreError::TimedOut { within },
                StoreError::TooManyRows { table, most: ROWS_MAX },
            ]
        };
        let reading = |rows: Option<&Arc<Vec<_>>>, failure: Option<StoreError>| Reading {
            rows: rows.cloned(),
            failure: failure.map(Arc::new),
            readings: 1,
        };
        let mut tables = Tables { has_peers: true, ..Tables::default() };
        for failure in failures() {
            tables.take(reading(None, Some(failure)));
            assert!(tables.waiting().is_none());
        }
        let row = vec![String::new(), "192.0.2.1".to_owned()];
        let denied = Arc::new(vec![(Table::DeniedPeers, row)]);
        tables.take(reading(Some(&denied), None));
        assert_eq!(tables.waiting().unwrap().peers.deny.len(), 1);
        tables.accept();
        for failure in failures() {
            tables.take(reading(Some(&denied), Some(failure)));
            assert!(tables.waiting().is_none(), "the known ones stay");
        }
        tables.take(reading(Some(&Arc::default()), None));
        assert_eq!(tables.waiting().unwrap(), &DatabaseRules::default());
    }
}
