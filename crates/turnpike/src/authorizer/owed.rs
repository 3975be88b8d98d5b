//! Clients that `authorizer.when_silent` has served without an answer of the service. The
//! questions about these clients are repeated until the service answers.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fair_share::{FairQueue, USERS, system_hasher};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use turn_proto::Applicant;

use super::kept::{Key, claimant};
use super::questions::quick_accounts::QuickAccounts;

/// Maximum number of clients without an answer: about 2 MiB. If the table is full, either the new
/// client is refused, or a client of the account or network with most entries loses its sessions.
const OWED_MAX: usize = 4096;

/// Time by which each client without an answer delays further clients of its account and network in
/// the queue.
const DELAY: Duration = Duration::from_millis(100);

/// Maximum number of questions about clients without an answer that wait for a late answer, each
/// with a connection. A refusal that takes longer than `authorizer.answer_within` ends sessions as
/// well.
const OWED_LATE_MAX: usize = 128;

/// Maximum number of these questions in flight for one account, including late questions, if the
/// account's last question was answered in time. Otherwise the maximum is one, because the service
/// may hang for all clients of the account.
const OWED_OF_ACCOUNT_MAX: u32 = 4;

/// Table of clients without an answer.
#[derive(Debug)]
pub(super) struct OwedAnswers {
    state: Mutex<State>,
    /// Permits to wait for a late answer.
    late: Arc<Semaphore>,
    started: Instant,
}

#[derive(Debug)]
struct State {
    waiting: FairQueue<OwedAnswer>,
    /// Clients in the queue and clients whose question is open, each with the time when the client
    /// was last served.
    owed: HashMap<Key, Instant>,
    /// True if the queue contains clients that an answer has settled.
    has_settled: bool,
    /// Number of questions in flight for each account, without zeros.
    in_flight: HashMap<u64, u32>,
    /// Accounts whose last question was answered in time.
    answered: QuickAccounts,
    hasher: RandomState,
}

impl State {
    fn account(&self, applicant: &Applicant) -> u64 {
        self.hasher.hash_one((&*applicant.realm, &*applicant.account))
    }

    fn end(&mut self, applicant: &Applicant) {
        let account = self.account(applicant);
        if let Some(number) = self.in_flight.get_mut(&account) {
            *number -= 1;
            if *number == 0 {
                self.in_flight.remove(&account);
            }
        }
    }

    /// Adds a client to the queue. Returns the client that was dropped for lack of space, unless a
    /// late answer has settled that client.
    fn push(&mut self, now: turn_types::Instant, owed: OwedAnswer) -> Option<OwedAnswer> {
        let applicant = owed.applicant.clone();
        let dropped = self.waiting.push(now, &claimant(&applicant), owed)?;
        self.owed.remove(&Key::of(&dropped.applicant)).map(|_| dropped)
    }
}

/// Client without an answer.
#[derive(Clone, Debug)]
pub(super) struct OwedAnswer {
    pub(super) applicant: Applicant,
    /// Time of the question. The client's sessions are newer.
    pub(super) opened: turn_types::Instant,
    /// Number of later questions about the client without any response.
    pub(super) lost: u32,
}

/// Result of adding a client.
#[derive(Debug)]
pub(super) enum Added {
    /// The service will be queried about the client.
    Owed,
    /// The service will be queried about the client. The contained client was dropped for lack of
    /// space, and its sessions must end.
    InPlaceOf(OwedAnswer),
    /// The table is full.
    Full,
}

impl OwedAnswers {
    pub(super) fn new() -> Self {
        let waiting = FairQueue::new(&USERS, OWED_MAX, DELAY, system_hasher());
        let state = State {
            waiting,
            owed: HashMap::new(),
            has_settled: false,
            in_flight: HashMap::new(),
            answered: QuickAccounts::default(),
            hasher: RandomState::new(),
        };
        let late = Arc::new(Semaphore::new(OWED_LATE_MAX));
        Self { state: Mutex::new(state), late, started: Instant::now() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Adds a client, unless the table already contains the client.
    pub(super) fn add(&self, owed: OwedAnswer, now: Instant) -> Added {
        let key = Key::of(&owed.applicant);
        let mut state = self.lock();
        if state.owed.insert(key.clone(), now).is_some() {
            return Added::Owed;
        }
        match state.push(self.since_start(now), owed) {
            Some(dropped) if Key::of(&dropped.applicant) == key => Added::Full,
            Some(dropped) => Added::InPlaceOf(dropped),
            None => Added::Owed,
        }
    }

    /// Adds a client again after a question without an answer. Returns the client that was dropped
    /// for lack of space, unless a late answer has settled that client.
    pub(super) fn put_back(&self, owed: OwedAnswer, now: Instant) -> Option<OwedAnswer> {
        let mut state = self.lock();
        state.end(&owed.applicant);
        let is_owed = state.owed.contains_key(&Key::of(&owed.applicant));
        if is_owed { state.push(self.since_start(now), owed) } else { None }
    }

    /// Removes and returns the next client to query about. The question is in flight until
    /// [`put_back`](Self::put_back) or [`end`](Self::end). Clients of accounts with the maximum
    /// number of questions in flight are skipped.
    pub(super) fn take(&self) -> Option<OwedAnswer> {
        let mut state = self.lock();
        let State { waiting, owed, has_settled, in_flight, answered, hasher } = &mut *state;
        if std::mem::take(has_settled) {
            waiting.retain(|waiting| owed.contains_key(&Key::of(&waiting.applicant)));
        }
        let next = waiting.pop_where(OWED_MAX, |OwedAnswer { applicant, .. }| {
            let account = hasher.hash_one((&*applicant.realm, &*applicant.account));
            let most = if answered.answers(account) > 0 { OWED_OF_ACCOUNT_MAX } else { 1 };
            in_flight.get(&account).is_none_or(|number| *number < most)
        })?;
        let account = state.account(&next.applicant);
        *state.in_flight.entry(account).or_default() += 1;
        Some(next)
    }

    /// Removes a question in flight after an answer.
    pub(super) fn end(&self, applicant: &Applicant) {
        self.lock().end(applicant);
    }

    /// Records if a question was answered in time.
    pub(super) fn note(&self, applicant: &Applicant, is_in_time: bool) {
        let mut state = self.lock();
        let account = state.account(applicant);
        if is_in_time {
            state.answered.add(account);
        } else {
            state.answered.remove(account);
        }
    }

    /// Removes a client after an answer. Returns false if an earlier answer has removed the client.
    pub(super) fn settle(&self, applicant: &Applicant) -> bool {
        let mut state = self.lock();
        let was_owed = state.owed.remove(&Key::of(applicant)).is_some();
        state.has_settled |= was_owed;
        was_owed
    }

    /// Removes clients of the account of `asked` that were not served since a time and have no
    /// session. Returns true if `asked` was removed.
    pub(super) fn remove_ended(
        &self,
        asked: &OwedAnswer,
        since: Instant,
        has_session: impl Fn(&OwedAnswer) -> bool,
    ) -> bool {
        let mut state = self.lock();
        let State { waiting, owed, .. } = &mut *state;
        let mut remove_ended = |client: &OwedAnswer| {
            let key = Key::of(&client.applicant);
            let is_ended = key.has_account_of(&asked.applicant)
                && owed.get(&key).is_some_and(|served| *served < since)
                && !has_session(client);
            if is_ended {
                owed.remove(&key);
            }
            is_ended
        };
        waiting.retain(|client| !remove_ended(client));
        remove_ended(asked)
    }

    /// Returns a permit for a connection to wait for a late answer, or `None` if the maximum is
    /// reached.
    pub(super) fn wait_late(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.late).try_acquire_owned().ok()
    }

    /// Returns the time in the queue's clock.
    fn since_start(&self, now: Instant) -> turn_types::Instant {
        turn_types::Instant::ZERO + now.saturating_duration_since(self.started)
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

    /// The service hangs for one account, which had many clients in an outage.
    #[test]
    fn one_account_has_one_question_in_flight_until_one_is_answered() {
        let (answers, now) = (OwedAnswers::new(), Instant::now());
        for host in 0..160 {
            answers.add(owed("mallory", [198, 51, 100, host]), now);
        }
        answers.add(owed("alice", [192, 0, 2, 1]), now);
        answers.add(owed("alice", [192, 0, 2, 2]), now);
        let [mallory, alice] = [(); 2].map(|()| answers.take().unwrap());
        assert_eq!([&mallory, &alice].map(|owed| &*owed.applicant.account), ["mallory", "alice"]);
        assert!(answers.take().is_none());
        assert!(answers.settle(&alice.applicant));
        answers.end(&alice.applicant);
        assert_eq!(&*answers.take().unwrap().applicant.account, "alice");
        answers.note(&mallory.applicant, true);
        assert!(answers.put_back(mallory, now).is_none());
        let taken: Vec<_> = std::iter::from_fn(|| answers.take()).collect();
        assert_eq!(taken.len(), OWED_OF_ACCOUNT_MAX as usize);
        answers.note(&taken[0].applicant, false);
        for owed in taken {
            assert!(answers.put_back(owed, now).is_none());
        }
        assert!(answers.take().is_some() && answers.take().is_none(), "a late one");
    }

    /// Clients that were served again since a revocation are not removed.
    #[test]
    fn clients_without_sessions_are_removed() {
        let (answers, now) = (OwedAnswers::new(), Instant::now());
        for host in 0..10 {
            answers.add(owed("mallory", [198, 51, 100, host]), now);
            answers.add(owed("alice", [192, 0, 2, host]), now);
        }
        let asked = answers.take().unwrap();
        assert_eq!(&*asked.applicant.account, "mallory");
        let later = now + Duration::from_secs(1);
        answers.add(owed("mallory", [198, 51, 100, 5]), later);
        let has_session =
            |owed: &OwedAnswer| owed.applicant.client == ClientAddr(([198, 51, 100, 7], 1).into());
        assert!(!answers.remove_ended(&asked, now, has_session), "just served");
        assert!(answers.remove_ended(&asked, later, has_session));
        answers.end(&asked.applicant);
        let mut rest: Vec<_> = answers.lock().owed.keys().cloned().collect();
        rest.retain(|key| key.has_account_of(&asked.applicant));
        assert_eq!(rest.len(), 2);
        assert_eq!(answers.lock().waiting.len(), 12);
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
        // Counters of accounts may collide. In that case another client of the account is dropped.
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
