//! Outage of a store: its last error, and probes.
//!
//! A probe is a look-up without a client. The first success finishes the outage, even without
//! log-ins. Until then, earlier keys are valid.
//!
//! There is at most one probe. A look-up sent to the store also tests the store, and replaces the
//! probe, which could precede the look-up in a queue of the store. The thread polls the probe
//! separately from look-ups that need a response. The probe is dropped with the directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{Instant as TokioInstant, sleep_until};

use super::changes::ChangeCount;
use super::{Answer, Health, Lookups, within};
use crate::cache::Question;
use crate::error::StoreError;
use crate::store::{Lookup, UserRecord};

/// State of an outage.
pub(super) struct Outage {
    pub(super) error: Arc<StoreError>,
    /// Last failed look-up, repeated by the next probe.
    question: Question,
    /// Time of the next probe, by the clock of the timer. With another clock, the timer could fire
    /// early and repeatedly.
    due: TokioInstant,
    probe: Option<Probe>,
}

/// Probe in flight. `after` is the number of changes before the probe.
struct Probe {
    question: Question,
    after: ChangeCount,
    /// Look-up with the deadline of a call.
    found: Lookup<Option<UserRecord>>,
}

/// Event of an outage.
pub(super) enum Event {
    /// A probe is due.
    Due(Question),
    /// A probe has finished.
    Probed { question: Question, after: ChangeCount, found: Result<Option<UserRecord>, StoreError> },
}

impl Outage {
    /// Drops the current probe, and schedules the next.
    pub(super) fn put_off(&mut self, probe_every: Duration) {
        self.probe = None;
        self.due = TokioInstant::now() + probe_every;
    }
}

/// Waits for the next event. Dropping the future loses nothing.
pub(super) async fn next(outage: &mut Option<Outage>) -> Event {
    let Some(outage) = outage else { return std::future::pending().await };
    let Some(probe) = &mut outage.probe else {
        sleep_until(outage.due).await;
        return Event::Due(outage.question.clone());
    };
    let found = probe.found.as_mut().await;
    let (question, after) = (probe.question.clone(), probe.after);
    outage.probe = None;
    Event::Probed { question, after, found }
}

impl<T, D: Fn(T, Answer)> Lookups<T, D> {
    pub(super) fn respond(&mut self, event: Event) {
        match event {
            // A look-up in progress already tests the store.
            Event::Due(_) if !self.waiting.is_empty() => self.put_off_probe(),
            Event::Due(question) => self.probe(question),
            Event::Probed { question, after, found } => {
                let now = Instant::now();
                match found {
                    Ok(user) => {
                        self.keep(now, &question, after, user.as_ref());
                    }
                    Err(StoreError::Row { .. }) => {
                        self.keep(now, &question, after, None);
                    }
                    Err(error) => {
                        self.put_off_probe();
                        (self.report)(Health::Failing(Arc::new(error)));
                    }
                }
            }
        }
    }

    /// Probes a failing store, unless a probe is in flight.
    pub(super) fn probe(&mut self, question: Question) {
        if let Some(outage) = &mut self.outage
            && outage.probe.is_none()
        {
            let after = self.answers.lock().changes.count();
            let lookup = self.reader.find(&question.realm, &question.user);
            let found = Box::pin(within(self.options.store_within, lookup));
            outage.probe = Some(Probe { question, after, found });
        }
    }

    /// Drops the current probe, and schedules the next.
    pub(super) fn put_off_probe(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.put_off(self.options.probe_every);
        }
    }

    /// Returns the last confirmed record of a user, while the store fails.
    pub(super) fn last_known(&self, now: Instant, question: &Question) -> Option<UserRecord> {
        self.outage.as_ref()?;
        let within = self.options.last_known_for;
        self.answers.lock().cache.last_known(now, question, within)
    }

    /// Records that the store has answered, and reports the end of an outage.
    pub(super) fn recovered(&mut self, now: Instant) {
        self.answered = Some(now);
        if self.outage.take().is_some() {
            (self.report)(Health::Recovered);
        }
    }

    /// Responds to a late look-up. A store that has answered other look-ups since the call is
    /// alive.
    pub(super) fn missed(&mut self, now: Instant, question: &Question, asked: Instant) {
        let is_alive = self.answered.is_some_and(|answered| answered > asked);
        let late = StoreError::TimedOut { within: self.options.store_within };
        self.failed(now, question, if is_alive { StoreError::Overloaded } else { late });
    }

    /// Responds to a failed look-up, with the last known user if available.
    pub(super) fn failed(&mut self, now: Instant, question: &Question, error: StoreError) {
        // A limit of this process is not a failure of the store.
        if matches!(error, StoreError::Overloaded) {
            return self.answer(question, Answer::Overloaded);
        }
        let error = Arc::new(error);
        self.outage = Some(Outage {
            error: Arc::clone(&error),
            question: question.clone(),
            due: TokioInstant::now() + self.options.probe_every,
            probe: self.outage.take().and_then(|outage| outage.probe),
        });
        (self.report)(Health::Failing(Arc::clone(&error)));
        let last = self.last_known(now, question);
        let answer = last.map_or_else(|| self.unavailable(question, error), Answer::LastKnown);
        self.answer(question, answer);
    }

    /// Returns the answer for a user without a valid record, while the store fails.
    pub(super) fn unavailable(&self, question: &Question, error: Arc<StoreError>) -> Answer {
        if self.answers.lock().is_refused(question) {
            return Answer::Unconfirmed(error);
        }
        Answer::Unavailable(error)
    }
}
