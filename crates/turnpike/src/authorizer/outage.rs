//! Log lines about a service that does not answer, or does not answer all questions in time. Each
//! cause is logged as a warning, repeated at most once a minute. One line reports the end of an
//! outage.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::throttle::{CauseThrottle, Throttle};

/// Time for which a late response shows that the service is slow rather than silent.
const SLOW_FOR: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    // Throttles for warnings of each kind.
    of_outage: CauseThrottle,
    of_response: CauseThrottle,
    of_late: Throttle,
    of_overload: Throttle,
    of_rate: Throttle,
    /// True if the last question was not answered.
    is_failing: bool,
    /// True if a log line has reported the outage.
    is_told: bool,
    answered: Option<Instant>,
    /// Time of the latest response that arrived after its deadline.
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

    /// Records a response without a decision.
    pub(super) fn unusable(&self, why: &str) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_response.is_due(why, Instant::now()) {
            drop(last);
            tracing::warn!("the authorizer gives no decision ({why}): its clients are refused");
        }
    }

    /// Records a client that is refused because the service has repeatedly rejected questions with
    /// status 429.
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

    /// Records a question without an answer in time, while the service answers other questions.
    pub(super) fn late(&self, why: &str) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.of_late.is_due(Instant::now()) {
            drop(last);
            tracing::warn!(
                "the authorizer did not answer a question in time ({why}), and answers others: its client is refused"
            );
        }
    }

    /// Records a question that was not sent: the service works, but is too slow for all questions.
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

    /// Returns true if the service has answered a question within the last `time`.
    pub(super) fn has_answered_within(&self, time: Duration) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered.is_some_and(|answered| answered.elapsed() <= time)
    }

    /// Records a response that arrived after its deadline.
    pub(super) fn answered_late(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered_late = Some(Instant::now());
    }

    /// Returns true if, within the last minute, the service answered a question after its deadline.
    pub(super) fn is_slow(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.answered_late.is_some_and(|late| late.elapsed() <= SLOW_FOR)
    }

    /// Returns true if the last question was not answered, and no question was answered within the
    /// last `time`.
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
