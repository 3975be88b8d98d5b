//! Lines about a service that does not answer: a warning, again each minute, and one line at the
//! end.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of warnings: each question without an answer would be a line.
const WARNING_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    warned: Option<Instant>,
    is_failing: bool,
}

impl Outage {
    pub(super) fn failed(&self, why: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = told.warned.is_none_or(|at| now.duration_since(at) >= WARNING_EVERY);
        if is_due {
            told.warned = Some(now);
            told.is_failing = true;
            drop(told);
            tracing::warn!(
                "the authorizer gives no answer ({why}): authorizer.when_silent decides"
            );
        }
    }

    pub(super) fn answered(&self) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut told.is_failing) {
            drop(told);
            tracing::info!("the authorizer answers again");
        }
    }
}
