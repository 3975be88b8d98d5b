//! Lines of the log about a state that lasts.

use std::fmt;
use std::time::Instant;

use crate::limits::TELL_EVERY;

/// Lines of the log about a state that goes on: one at its begin, some while it lasts, one at its
/// end.
#[derive(Debug, Default)]
pub(crate) struct Told(Option<Instant>);

impl Told {
    pub(crate) fn failed(&mut self, what: &str, error: &dyn fmt::Display) {
        if self.0.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
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
