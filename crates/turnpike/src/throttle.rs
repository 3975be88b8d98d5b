//! Limit of repeated warnings.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Interval of warnings about one condition: each occurrence would be a line.
pub(crate) const WARNING_EVERY: Duration = Duration::from_secs(60);

/// Limits a warning to one in [`WARNING_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct Throttle(Cell<Option<Instant>>);

impl Throttle {
    /// Returns true if a warning is due, and starts the next interval.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let last = self.0.get();
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= WARNING_EVERY);
        if due {
            self.0.set(Some(now));
        }
        due
    }
}
