//! Asynchronous look-ups in an SQLite file: a thread that owns the connection, with a bounded
//! queue.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::limits::{CLOSE_WITHIN, FILE_LOOKUPS_MAX, IN_FLIGHT_MAX};
use crate::sqlite::SqliteStore;
use crate::store::{Lookup, UserQuery, UserReader, UserRecord};

type Job = Box<dyn FnOnce(&mut SqliteStore) + Send>;

/// Look-ups in an SQLite file. A hanging file system blocks only the reader's thread. Queued
/// look-ups wait for their deadlines, and the thread later skips the expired ones.
pub struct SqliteReader {
    /// Dropped to stop the thread.
    jobs: Option<SyncSender<Job>>,
    /// Disconnected when the thread has closed the file.
    closed: Receiver<()>,
}

impl SqliteReader {
    /// Opens the file, as [`SqliteStore::open`], and starts the thread.
    ///
    /// # Errors
    /// [`SqliteStore::open`] fails, or the system cannot start another thread.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut store = SqliteStore::open(path)?;
        let (jobs, queue) = sync_channel::<Job>(IN_FLIGHT_MAX);
        let (closing, closed) = channel();
        let work = move || {
            queue.into_iter().for_each(|job| job(&mut store));
            drop(store);
            drop(closing);
        };
        let spawned = std::thread::Builder::new().name("users-sqlite".to_owned()).spawn(work);
        spawned.map_err(StoreError::Threads)?;
        Ok(Self { jobs: Some(jobs), closed })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut SqliteStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Lookup<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |store: &mut SqliteStore| {
            if !reply.is_closed() {
                // A look-up cancelled while queued needs no answer.
                let _ = reply.send(work(store));
            }
        });
        let queued = self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok());
        Box::pin(async move {
            if !queued {
                return Err(StoreError::Overloaded);
            }
            answer.await.unwrap_or(Err(StoreError::Overloaded))
        })
    }
}

impl UserReader for SqliteReader {
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let (realm, user) = (Arc::clone(realm), user.clone());
        self.run(move |store| store.find(&realm, &user))
    }

    fn concurrent_max(&self) -> usize {
        FILE_LOOKUPS_MAX
    }

    fn revision(&self) -> Lookup<u64> {
        self.run(SqliteStore::revision)
    }
}

impl Drop for SqliteReader {
    /// Waits until the thread has closed the file, when SQLite empties the write-ahead log. Waits
    /// at most `CLOSE_WITHIN`, because the file system may hang.
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.closed.recv_timeout(CLOSE_WITHIN);
    }
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").finish_non_exhaustive()
    }
}
