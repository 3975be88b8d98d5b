//! Answers of the store that the thread and the workers share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::changes::Changes;
use crate::cache::Cache;

/// Answers of the store, shared by the thread and the workers.
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
    /// The code in there does not panic, and the cache would still be whole after a panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, KnownUsers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownUsers {
    /// Returns whether a check for changes is due before the cache may be used.
    pub(super) fn is_stale(&self, now: Instant, changes_after: Duration) -> bool {
        self.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= changes_after)
    }
}
