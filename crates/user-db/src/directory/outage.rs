//! Outage of a store: its last error, and probes. A probe is a look-up without a client. The first
//! success is the end of the outage, also without log-ins: until then, earlier keys are valid.
//!
//! There is one probe at a time. A look-up sent to the store tests the store as well, and replaces
//! the probe, which may be before it in a queue of the store. The thread polls the probe itself,
//! apart from look-ups that need a response, and drops it when the directory is dropped.

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
    /// Last look-up that failed: that of the next probe.
    question: Question,
    /// Time of the next probe, by the clock of the timer: the timer never fires early and often.
    due: TokioInstant,
    probe: Option<Probe>,
}

/// A probe in flight. `after` is the number of changes before it.
struct Probe {
    question: Question,
    after: ChangeCount,
    /// With the deadline of a call.
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
    /// Drops the probe, and schedules the next.
    pub(super) fn put_off(&mut self, probe_every: Duration) {
        self.probe = None;
        self.due = TokioInstant::now() + probe_every;
    }
}

/// Waits for the next event. Nothing is lost if the wait is dropped.
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
            // A look-up in progress tests the store.
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

    /// Probes a failing store, unless there is a probe.
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

    /// Drops the probe, and schedules the next.
    pub(super) fn put_off_probe(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.put_off(self.options.probe_every);
        }
    }

    /// Last confirmed record of a user, while the store fails.
    pub(super) fn last_known(&self, now: Instant, question: &Question) -> Option<UserRecord> {
        self.outage.as_ref()?;
        let within = self.options.last_known_for;
        self.answers.lock().cache.last_known(now, question, within)
    }

    /// The store has answered.
    pub(super) fn recovered(&mut self, now: Instant) {
        self.answered = Some(now);
        if self.outage.take().is_some() {
            (self.report)(Health::Recovered);
        }
    }

    /// Responds to a late look-up. A store that has answered other look-ups is alive.
    pub(super) fn missed(&mut self, now: Instant, question: &Question, asked: Instant) {
        let is_alive = self.answered.is_some_and(|answered| answered > asked);
        let late = StoreError::TimedOut { within: self.options.store_within };
        self.failed(now, question, if is_alive { StoreError::Overloaded } else { late });
    }

    /// Responds to a look-up that failed: by the last known user, if there is one.
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

    /// Answer about an unknown user while the store fails.
    pub(super) fn unavailable(&self, question: &Question, error: Arc<StoreError>) -> Answer {
        if self.answers.lock().is_refused(question) {
            return Answer::Unconfirmed(error);
        }
        Answer::Unavailable(error)
    }
}
