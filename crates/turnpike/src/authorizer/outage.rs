//! Lines about a service that does not answer, or not to so many questions: a warning of each
//! cause, again each minute, and one line at the end of an outage.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::throttle::{CauseThrottle, Throttle};

/// Time for which a late response shows that the service is slow, not silent.
const SLOW_FOR: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    // Warnings of each kind.
    of_outage: CauseThrottle,
    of_response: CauseThrottle,
    of_late: Throttle,
    of_overload: Throttle,
    of_rate: Throttle,
    /// The last question had no answer.
    is_failing: bool,
    /// A line of the log has reported the failure.
    is_told: bool,
    answered: Option<Instant>,
    /// Time of the latest response after its deadline.
    answered_late: Option<Instant>,
}

impl Outage {
    pub(super) fn failed(&self, why: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_failing = true;
        if last.of_outage.is_due(why, Instant::now()) {
            last.is_told = true;
            drop(last);
            tracing::warn!(
                "the authorizer gives no answer ({why}): authorizer.when_silent decides"
            );
        }
    }

    /// Notes a response without a decision.
    pub(super) fn unusable(&self, why: &str) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_response.is_due(why, Instant::now()) {
            drop(last);
            tracing::warn!("the authorizer gives no decision ({why}): its clients are refused");
        }
    }

    /// Notes a client that is refused since the service has refused more questions (429).
    pub(super) fn busy(&self) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_rate.is_due(Instant::now()) {
            drop(last);
            tracing::warn!(
                "the authorizer has refused a question for two seconds (status 429), and its client is refused; \
                 where it limits their rate, raise that limit"
            );
        }
    }

    /// Notes a question without an answer in time, of a service that answers others.
    pub(super) fn late(&self, why: &str) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_late.is_due(Instant::now()) {
            drop(last);
            tracing::warn!(
                "the authorizer did not answer a question in time ({why}), and answers others: its client is refused"
            );
        }
    }

    /// A question was not asked: the service is well, but too slow for all.
    pub(super) fn overloaded(&self) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_overload.is_due(Instant::now()) {
            drop(last);
            tracing::warn!(
                "more clients ask for allocations than the authorizer answers in time: those whose \
                 account or network asks most, or whose questions it answers late, are refused"
            );
        }
    }

    /// Returns true if the service has answered a question within this time.
    pub(super) fn has_answered_within(&self, time: Duration) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered.is_some_and(|answered| answered.elapsed() <= time)
    }

    /// Notes a response after its deadline.
    pub(super) fn answered_late(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered_late = Some(Instant::now());
    }

    /// Returns true if the service has answered a question after its deadline, within a minute.
    pub(super) fn is_slow(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered_late.is_some_and(|late| late.elapsed() <= SLOW_FOR)
    }

    /// Returns true if the last question had no answer, and no question had for this time.
    pub(super) fn is_silent_for(&self, time: Duration) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_failing && last.answered.is_none_or(|answered| answered.elapsed() >= time)
    }

    pub(super) fn answered(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered = Some(Instant::now());
        last.is_failing = false;
        if std::mem::take(&mut last.is_told) {
            drop(last);
            tracing::info!("the authorizer answers again");
        }
    }
}
