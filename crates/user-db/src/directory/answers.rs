//! Cached answers, shared by the thread and the workers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::changes::Changes;
use crate::cache::Cache;

/// Cached answers and their state.
pub(super) struct Answers {
    pub(super) kept: Mutex<KnownUsers>,
    pub(super) changes_after: Duration,
}

pub(super) struct KnownUsers {
    pub(super) cache: Cache,
    pub(super) changes: Changes,
    /// Time of the last check for changes.
    pub(super) checked: Option<Instant>,
}

impl Answers {
    /// The code that holds the lock does not panic, and the cache would be consistent after a
    /// panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, KnownUsers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownUsers {
    /// Returns true if a check for changes must precede the use of the cache.
    pub(super) fn is_stale(&self, now: Instant, changes_after: Duration) -> bool {
        self.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= changes_after)
    }
}
