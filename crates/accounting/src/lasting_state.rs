//! Log lines about a lasting state.

use std::fmt;
use std::time::Instant;

use crate::limits::TELL_EVERY;

/// Log lines about a lasting failure: a line at the start, at intervals, and at the end.
#[derive(Debug, Default)]
pub(crate) struct StateLog(Option<Instant>);

impl StateLog {
    pub(crate) fn failed(&mut self, what: &str, error: &dyn fmt::Display) {
        if self.0.is_none_or(|last| last.elapsed() >= TELL_EVERY) {
            self.0 = Some(Instant::now());
            tracing::error!(%error, "{what}");
        }
    }

    pub(crate) fn works(&mut self, what: &str) {
        if self.0.take().is_some() {
            tracing::info!("{what}");
        }
    }
}
