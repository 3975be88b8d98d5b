//! Clients that `authorizer.when_silent` has served without an answer. The service is asked about
//! them again until it answers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fair_share::{FairQueue, USERS, system_hasher};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use turn_proto::Applicant;

use super::kept::{Key, claimant};

/// Maximum number of clients without an answer: some 2 MiB. Further ones are refused, or those of
/// the account or network with most lose their sessions.
const OWED_MAX: usize = 4096;

/// Time for which each client without an answer delays further ones of its account and network.
const DELAY: Duration = Duration::from_millis(100);

/// Number of questions about clients without an answer whose connections wait for a late answer:
/// a no that takes longer than `authorizer.answer_within` ends sessions as well.
const OWED_LATE_MAX: usize = 128;

/// Clients without an answer.
#[derive(Debug)]
pub(super) struct OwedAnswers {
    state: Mutex<State>,
    /// Questions that may wait for a late answer.
    late: Arc<Semaphore>,
    started: Instant,
}

#[derive(Debug)]
struct State {
    waiting: FairQueue<OwedAnswer>,
    /// Clients in the queue, and those whose question is open.
    owed: HashSet<Key>,
}

/// A client without an answer.
#[derive(Clone, Debug)]
pub(super) struct OwedAnswer {
    pub(super) applicant: Applicant,
    /// Time of the question. Its sessions are newer.
    pub(super) opened: turn_types::Instant,
    /// Further questions about the client without any response.
    pub(super) lost: u32,
}

/// Result of an addition.
#[derive(Debug)]
pub(super) enum Added {
    /// The service will be asked about the client.
    Owed,
    /// The same, in place of another client, whose sessions are to end.
    InPlaceOf(OwedAnswer),
    /// The table is full.
    Full,
}

impl OwedAnswers {
    pub(super) fn new() -> Self {
        let waiting = FairQueue::new(&USERS, OWED_MAX, DELAY, system_hasher());
        let state = State { waiting, owed: HashSet::new() };
        let late = Arc::new(Semaphore::new(OWED_LATE_MAX));
        Self { state: Mutex::new(state), late, started: Instant::now() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Adds a client, unless it is there.
    pub(super) fn add(&self, owed: OwedAnswer, now: Instant) -> Added {
        let key = Key::of(&owed.applicant);
        if !self.lock().owed.insert(key.clone()) {
            return Added::Owed;
        }
        match self.put_back(owed, now) {
            Some(dropped) if Key::of(&dropped.applicant) == key => Added::Full,
            Some(dropped) => Added::InPlaceOf(dropped),
            None => Added::Owed,
        }
    }

    /// Adds a client again after a question without an answer. Returns the client that was dropped
    /// for lack of space, unless a late answer has settled it.
    pub(super) fn put_back(&self, owed: OwedAnswer, now: Instant) -> Option<OwedAnswer> {
        let now = turn_types::Instant::ZERO + now.saturating_duration_since(self.started);
        let mut state = self.lock();
        let applicant = owed.applicant.clone();
        let dropped = state.waiting.push(now, &claimant(&applicant), owed)?;
        state.owed.remove(&Key::of(&dropped.applicant)).then_some(dropped)
    }

    /// Takes the client to ask about next.
    pub(super) fn take(&self) -> Option<OwedAnswer> {
        let mut state = self.lock();
        loop {
            let owed = state.waiting.pop()?;
            // A late answer may have settled it.
            if state.owed.contains(&Key::of(&owed.applicant)) {
                return Some(owed);
            }
        }
    }

    /// Removes a client after an answer. Returns false after an earlier answer.
    pub(super) fn settle(&self, applicant: &Applicant) -> bool {
        self.lock().owed.remove(&Key::of(applicant))
    }

    /// Permits a connection to wait for a late answer. `None`: the maximum is reached.
    pub(super) fn wait_late(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.late).try_acquire_owned().ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, Transport};

    use super::*;

    fn owed(user: &str, client: [u8; 4]) -> OwedAnswer {
        let applicant = Applicant {
            realm: "r".into(),
            user: user.into(),
            account: user.into(),
            transport: Transport::Udp,
            client: ClientAddr((client, 1).into()),
        };
        OwedAnswer { applicant, opened: turn_types::Instant::ZERO, lost: 0 }
    }

    #[test]
    fn a_client_is_asked_about_once_and_until_it_is_settled() {
        let (answers, now) = (OwedAnswers::new(), Instant::now());
        let alice = owed("alice", [192, 0, 2, 1]);
        for _ in 0..3 {
            assert!(matches!(answers.add(alice.clone(), now), Added::Owed));
        }
        let taken = answers.take().unwrap();
        assert!(answers.take().is_none());
        assert!(answers.put_back(taken, now).is_none());
        assert!(answers.take().is_some());
        answers.settle(&alice.applicant);
        assert!(matches!(answers.add(alice.clone(), now), Added::Owed));
        answers.settle(&alice.applicant);
        assert!(answers.take().is_none(), "a late answer");
    }

    #[test]
    fn access_tokens_of_one_key_are_several_clients() {
        let (answers, now) = (OwedAnswers::new(), Instant::now());
        for token in ["key#1", "key#2"] {
            let mut owed = owed(token, [192, 0, 2, 1]);
            owed.applicant.user = "key".into();
            assert!(matches!(answers.add(owed, now), Added::Owed));
        }
        let honest = answers.take().unwrap();
        answers.settle(&honest.applicant);
        assert_eq!(&*answers.take().unwrap().applicant.account, "key#2");
    }

    #[test]
    fn in_a_full_table_one_client_is_refused_and_others_are_not() {
        let (answers, now) = (OwedAnswers::new(), Instant::now());
        let mallory = |number: usize| owed(&format!("mallory {number}"), [198, 51, 100, 1]);
        for number in 0..OWED_MAX {
            assert!(matches!(answers.add(mallory(number), now), Added::Owed));
        }
        // Counters of accounts may collide: then another of them is dropped.
        match answers.add(mallory(OWED_MAX), now) {
            Added::Full => {}
            Added::InPlaceOf(dropped) if dropped.applicant.user.starts_with("mallory") => {}
            added @ (Added::Owed | Added::InPlaceOf(_)) => panic!("{added:?}"),
        }
        let added = answers.add(owed("alice", [192, 0, 2, 1]), now);
        let Added::InPlaceOf(dropped) = added else { panic!("{added:?}") };
        assert!(dropped.applicant.user.starts_with("mallory"));
        assert_eq!(&*answers.take().unwrap().applicant.user, "mallory 0");
        assert_eq!(&*answers.take().unwrap().applicant.user, "alice");
        // Clients with a late answer lose no session for lack of space.
        for number in 0..OWED_MAX {
            answers.settle(&mallory(number).applicant);
        }
        for name in ["bob", "carol", "dave"] {
            let added = answers.add(owed(name, [192, 0, 3, 1]), now);
            assert!(matches!(added, Added::Owed), "{added:?}");
        }
    }
}
