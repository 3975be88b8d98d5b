//! Limit of repeated warnings.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Minimum interval of warnings about one condition. Otherwise each occurrence would cause a line.
pub(crate) const WARNING_EVERY: Duration = Duration::from_secs(60);

/// Limiter of a warning to one per [`WARNING_EVERY`].
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

/// Maximum number of causes of one condition with a warning within [`WARNING_EVERY`]. A service
/// that fails in several ways has a few causes. The limit prevents that invented causes fill the
/// log.
const CAUSES_MAX: usize = 8;

/// Limiter of the warnings about one condition to one per cause in [`WARNING_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct CauseThrottle(RefCell<Vec<(String, Instant)>>);

impl CauseThrottle {
    /// Returns true if a warning about this cause is due, and starts the cause's next interval.
    pub(crate) fn is_due(&self, cause: &str, now: Instant) -> bool {
        let mut told = self.0.borrow_mut();
        told.retain(|(_, at)| now.saturating_duration_since(*at) < WARNING_EVERY);
        let due = told.len() < CAUSES_MAX && !told.iter().any(|(known, _)| known == cause);
        if due {
            told.push((cause.to_owned(), now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_warned_about_once_a_minute_and_few_causes_are() {
        let (throttle, start) = (CauseThrottle::default(), Instant::now());
        let due = |cause: &str, second| throttle.is_due(cause, start + Duration::from_secs(second));
        assert!(due("status 500", 0) && due("status 302", 1));
        assert!(!due("status 500", 59) && due("status 500", 60));
        let invented = (0..100).filter(|number| due(&format!("field {number}"), 61)).count();
        assert_eq!(invented, CAUSES_MAX - 1);
    }
}
