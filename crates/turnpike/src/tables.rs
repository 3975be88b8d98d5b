//! Rules that are in the tables of a database beside its users: read on a thread of their own, put
//! in force as a reload does.

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

/// Longest time of the reading before the server serves.
const FIRST_WITHIN: Duration = Duration::from_secs(2);

/// Warnings about rows that are logged at a time: a table may have many such rows.
const TOLD_MAX: usize = 8;

/// Rows that a command reads of one table, as many as a server does.
pub(crate) const ROWS_MAX: u32 = 16_384;

/// Rows of the tables of a configuration. It blocks.
fn read_once(settings: &Settings) -> Result<Vec<(Table, Row)>, StoreError> {
    let wanted = tables_of(settings);
    let tables = user_db::server_tables(settings.user_database().coturn_url().expose())?;
    let mut rows = Vec::new();
    for table in wanted {
        rows.extend(tables.rows(table, ROWS_MAX)?.into_iter().map(|row| (table, row)));
    }
    Ok(rows)
}

/// Tables that a configuration reads.
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

/// The tables of a database, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    watch: Option<TableWatch>,
    /// Rules for peers are read.
    has_peers: bool,
    /// The value of `compatibility.short_secrets`.
    short_secrets: bool,
    rows: Option<Arc<Vec<(Table, Row)>>>,
    /// Time at which a key begins or ends.
    due: Option<SystemTime>,
    /// Rules that are not in force yet.
    waiting: Option<DatabaseRules>,
    /// Warnings that were logged, of the rows that are there.
    told: BTreeSet<String>,
    failing: Option<Failing>,
    /// Names the tables and their database.
    identity: Secret<[u8; 32]>,
    last_read: LastRead,
}

impl Tables {
    /// The tables of a configuration, which are not read yet.
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

    /// Takes the rows that the process before has read last, unless they are of other tables. They
    /// count until the first reading.
    pub(crate) fn go_on_from(&mut self, before: &LastRows) {
        if let Some(rows) = before.of(self.identity) {
            self.put(Arc::new(rows));
        }
    }

    /// Puts rules in force until the first reading: those of the process before, or none.
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

    /// Rules of the tables of a configuration, read once. It blocks.
    ///
    /// # Errors
    /// Errors of the database.
    pub(crate) fn read(settings: &Settings) -> Result<DatabaseRules, StoreError> {
        if tables_of(settings).is_empty() {
            return Ok(DatabaseRules::default());
        }
        let rows = read_once(settings)?;
        Ok(rules::of(&rows, SystemTime::now(), settings.compatibility.short_secrets).rules)
    }

    /// Reads the tables before the server serves, if the database answers soon: its rules are in
    /// force for the first clients.
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

    /// Begins to read the tables of a configuration.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn watch(&mut self, settings: &Settings) -> Result<(), StoreError> {
        let tables = tables_of(settings);
        if !tables.is_empty() {
            let url = settings.user_database().coturn_url();
            let watch = TableWatch::start(url.expose(), tables, TableWatchOptions::default())?;
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// The cell with the rows for the process that follows.
    pub(crate) fn last_read(&self) -> LastRead {
        self.last_read.clone()
    }

    /// The next reading that differs; never, where there are no tables. May be dropped and called
    /// again.
    pub(crate) async fn changed(&mut self) -> Reading {
        match &mut self.watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Takes a reading.
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

    /// Warns about a failure that goes on, and follows the clock.
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

    /// Rules while the tables cannot be read.
    const fn meanwhile(&self) -> &'static str {
        match (&self.rows, self.has_peers) {
            (Some(_), _) => "their last known rules stay in force",
            (None, true) => "until they are, no peer may be reached but those of peers.allow",
            (None, false) => {
                "until they are, credentials that they may prove get 500, and none of their rules are in force"
            }
        }
    }

    /// Failure of the last reading, and the rules meanwhile.
    pub(crate) fn failure(&self) -> Option<String> {
        let failing = self.failing.as_ref()?;
        Some(format!("{}: {}", failing.error, self.meanwhile()))
    }

    /// Rules that are to be put in force.
    pub(crate) const fn waiting(&self) -> Option<&DatabaseRules> {
        self.waiting.as_ref()
    }

    /// The rules are in force. The next process gets their rows.
    pub(crate) fn accept(&mut self) {
        self.waiting = None;
        if let Some(rows) = &self.rows {
            self.last_read.set(LastRows::new(self.identity, rows));
        }
    }

    /// The rules do not fit: the ones before stay in force, also in the next process.
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

/// A failure of the readings.
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

    /// A process that starts in an outage knows the rules of the process before.
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

    /// Overloaded and unreachable databases, a table beyond the limit, and an empty table.
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
