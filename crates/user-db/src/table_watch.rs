//! Repeated reading of coturn's tables, on a dedicated thread. If the database fails, hangs or has
//! too many rows, the last known rows remain.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::coturn::CoturnDatabase;
use crate::error::StoreError;
use crate::limits::TABLE_ROWS_MAX;
use crate::server::{Purpose, open};
use crate::table::{Row, Table};

/// Times of a table watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableWatchOptions {
    /// Minimum interval between readings.
    pub every: Duration,
    /// Maximum interval between readings.
    pub at_least_every: Duration,
    /// Deadline of a reading.
    pub within: Duration,
}

impl Default for TableWatchOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            at_least_every: Duration::from_secs(60),
            within: Duration::from_secs(10),
        }
    }
}

impl TableWatchOptions {
    /// Returns the pause after a reading. In a large Redis, a reading scans all keys: the pause
    /// limits readings to a tenth of the time.
    fn pause(&self, took: Duration) -> Duration {
        (took * 9).max(self.every).min(self.at_least_every)
    }
}

/// Result of the last reading.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Last known rows, sorted. `None` before the first successful reading.
    pub rows: Option<Arc<Vec<(Table, Row)>>>,
    /// Error of the last reading.
    pub failure: Option<Arc<StoreError>>,
    /// Number of readings so far.
    pub readings: u64,
}

/// Watch of tables. Dropping the value stops the thread.
pub struct TableWatch(watch::Receiver<Reading>);

impl TableWatch {
    /// Starts the thread. Does not wait for the network.
    ///
    /// # Errors
    /// [`check_url`](crate::check_url) would fail for the URL, or the system cannot start another
    /// thread.
    pub fn start(
        url: &str,
        tables: Vec<Table>,
        options: TableWatchOptions,
    ) -> Result<Self, StoreError> {
        let database = open(url, Purpose::Read)?;
        let (sender, receiver) = watch::channel(Reading::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StoreError::Threads)?;
        let work = move || {
            runtime.block_on(read_again(&database, &tables, options, &sender));
            // Does not wait for a connection that hangs.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("user-tables".to_owned()).spawn(work);
        thread.map_err(StoreError::Threads)?;
        Ok(Self(receiver))
    }

    /// Waits for the next reading that differs from the last one, in rows or in success. The future
    /// may be dropped, and the function called again.
    pub async fn changed(&mut self) -> Reading {
        if self.0.changed().await.is_err() {
            // The thread stops only by a panic. The last rows remain.
            std::future::pending::<()>().await;
        }
        self.0.borrow_and_update().clone()
    }
}

impl fmt::Debug for TableWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWatch").finish_non_exhaustive()
    }
}

async fn read_again(
    database: &Arc<dyn CoturnDatabase>,
    tables: &[Table],
    options: TableWatchOptions,
    sender: &watch::Sender<Reading>,
) {
    let mut took = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let found = tokio::select! {
            found = read(database, tables, options.within) => found,
            () = sender.closed() => return,
        };
        // The shorter of two durations: a reading delayed by a hanging server did not load the
        // server.
        let pause = options.pause(took.min(begun.elapsed()));
        if found.is_ok() {
            took = begun.elapsed();
        }
        sender.send_if_modified(|last| last.take(found));
        tokio::select! {
            () = sleep(pause) => {}
            () = sender.closed() => return,
        }
    }
}

impl Reading {
    /// Stores a reading. Returns true if rows or success differ from the last reading.
    fn take(&mut self, found: Result<Vec<(Table, Row)>, StoreError>) -> bool {
        let is_first = self.readings == 0;
        self.readings += 1;
        match found {
            Ok(rows) => {
                let recovered = self.failure.take().is_some();
                let differs = self.rows.as_ref().is_none_or(|last| **last != rows);
                if differs {
                    self.rows = Some(Arc::new(rows));
                }
                is_first || recovered || differs
            }
            Err(error) => {
                let began = self.failure.is_none();
                self.failure = Some(Arc::new(error));
                began
            }
        }
    }
}

async fn read(
    database: &Arc<dyn CoturnDatabase>,
    tables: &[Table],
    within: Duration,
) -> Result<Vec<(Table, Row)>, StoreError> {
    let rows = Arc::clone(database).rows(tables.to_vec(), TABLE_ROWS_MAX);
    let late = StoreError::TimedOut { within };
    let mut rows = timeout(within, rows).await.unwrap_or(Err(late))?;
    for table in tables {
        let count = rows.iter().filter(|(of, _)| of == table).count();
        if count > TABLE_ROWS_MAX as usize {
            return Err(StoreError::TooManyRows { table: table.name(), most: TABLE_ROWS_MAX });
        }
    }
    rows.sort_unstable();
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_news_and_a_failure_keeps_the_rows() {
        let mut reading = Reading::default();
        let rows = || vec![(Table::Secrets, vec!["r".to_owned(), "s".to_owned()])];
        let error = || StoreError::Overloaded;
        assert!(reading.take(Err(error())), "the first failure is news");
        assert!(!reading.take(Err(error())));
        assert!(reading.rows.is_none());
        assert!(reading.take(Ok(rows())));
        assert!(!reading.take(Ok(rows())));
        assert!(reading.take(Err(error())));
        assert_eq!(reading.rows.as_deref(), Some(&rows()));
        assert!(reading.take(Ok(rows())), "the end of a failure is news");
        assert!(reading.take(Ok(Vec::new())));
    }

    #[test]
    fn a_slow_database_is_read_less_often() {
        let options = TableWatchOptions::default();
        let pause = |millis| options.pause(Duration::from_millis(millis)).as_millis();
        assert_eq!([5, 200, 9_000].map(pause), [1000, 1800, 60_000]);
    }
}
