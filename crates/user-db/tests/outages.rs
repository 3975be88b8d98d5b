//! Outages of a store: probes, recovery, and users whom the store has refused before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use test_support::eventually;
use user_db::{
    Answer, Directory, DirectoryOptions, Health, Lookup, StoreError, UserQuery, UserReader,
    UserRecord,
};

use crate::directory::{AT_ONCE, CLIENT, REALM, Scripted, some_user, start_with};
use crate::support::by_name;

/// Scripted store with its directory, and the health reports: true for a failure.
struct Outage {
    store: Scripted,
    directory: Directory<u32>,
    answered: Receiver<(u32, Answer)>,
    reported: Receiver<bool>,
}

impl Outage {
    /// Starts an outage by a failed look-up of alice, who was known before.
    fn of_alice(probe_every: Duration) -> Self {
        let store = Scripted::default();
        let options = DirectoryOptions { probe_every, ..AT_ONCE };
        let (answers, answered) = channel();
        let (reports, reported) = channel();
        let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
        let report = move |health| {
            let _ = reports.send(matches!(health, Health::Failing(_)));
        };
        let reader = Box::new(store.clone());
        let directory = Directory::start_with_health(reader, options, deliver, report).unwrap();
        let this = Self { store, directory, answered, reported };
        assert!(matches!(this.ask("alice", Some(Ok(true))), Answer::Known(_)));
        this.fail();
        this
    }

    /// Starts an outage.
    fn fail(&self) {
        self.store.revision.fetch_add(1, Ordering::Relaxed);
        let late = StoreError::TimedOut { within: Duration::ZERO };
        self.reported.try_iter().for_each(drop);
        self.ask("alice", Some(Err(late)));
        assert!(self.reported.recv_timeout(PATIENCE).unwrap());
    }

    /// Answers the next look-up or probe of a name.
    fn answer(&self, name: &str, answer: Result<bool, StoreError>) {
        eventually("the store is asked", || self.store.open(name) == 1);
        self.store.answer(name, answer);
    }

    /// Looks up a user. `of_store` is the store's response, if the look-up reaches the store.
    fn ask(&self, name: &str, of_store: Option<Result<bool, StoreError>>) -> Answer {
        assert!(self.directory.find(1, CLIENT, REALM.into(), by_name(name)));
        if let Some(answer) = of_store {
            self.answer(name, answer);
        }
        self.answered.recv_timeout(PATIENCE).unwrap().1
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(10);

/// Alice was deleted shortly before or during the outage.
#[test]
fn the_end_of_an_outage_is_noticed_while_nobody_asks() {
    let outage = Outage::of_alice(SOON);
    for is_over in [false, true] {
        let late = StoreError::TimedOut { within: Duration::ZERO };
        outage.answer("alice", if is_over { Ok(true) } else { Err(late) });
        assert_eq!(outage.reported.recv_timeout(PATIENCE).unwrap(), !is_over);
    }
    outage.store.revision.fetch_add(1, Ordering::Relaxed);
    assert!(matches!(outage.ask("alice", Some(Ok(false))), Answer::Unknown));
    std::thread::sleep(SOON * 5);
    assert_eq!(outage.store.open("alice"), 0, "no outage, no probe");
}

#[test]
fn a_directory_is_dropped_without_a_wait_for_a_probe() {
    for probe_every in [SOON, AT_ONCE.probe_every] {
        let outage = Outage::of_alice(probe_every);
        let Outage { store, directory, answered, .. } = outage;
        // Served without the store, and a reason for a probe.
        assert!(directory.find(1, CLIENT, REALM.into(), by_name("alice")));
        assert!(matches!(answered.recv_timeout(PATIENCE).unwrap(), (1, Answer::LastKnown(_))));
        eventually("a probe has begun", || store.open("alice") == 1);
        let (end, ended) = channel();
        std::thread::spawn(move || {
            drop(directory);
            end.send(()).unwrap();
        });
        ended.recv_timeout(PATIENCE / 4).expect("no wait for the deadline of the probe");
    }
}

#[test]
fn a_look_up_replaces_a_probe_and_none_begins_until_its_end() {
    let outage = Outage::of_alice(SOON);
    eventually("a probe has begun", || outage.store.open("alice") == 1);
    assert!(matches!(outage.ask("alice", None), Answer::LastKnown(_)));
    std::thread::sleep(SOON * 5);
    assert_eq!(outage.store.open("alice"), 1, "one at a time, and not replaced");

    assert!(outage.directory.find(2, CLIENT, REALM.into(), by_name("bob")));
    outage.store.has_begun("bob");
    eventually("the probe is given up", || outage.store.open("alice") == 0);
    std::thread::sleep(SOON * 5);
    assert_eq!(outage.store.open("alice"), 0, "bob's look-up is in progress");
    outage.store.answer("bob", Ok(false));
    assert!(matches!(outage.answered.recv_timeout(PATIENCE).unwrap(), (2, Answer::Unknown)));
    assert!(!outage.reported.recv_timeout(PATIENCE).unwrap(), "the outage is over");
}

/// Sessions continue in an outage, but not those of a user whom the store has refused before.
#[test]
fn a_refused_user_is_unconfirmed_in_an_outage() {
    let outage = Outage::of_alice(AT_ONCE.probe_every);
    assert!(matches!(outage.ask("bob", Some(Ok(false))), Answer::Unknown));
    outage.store.revision.fetch_add(1, Ordering::Relaxed);
    assert!(matches!(outage.ask("alice", Some(Ok(false))), Answer::Unknown));
    outage.fail();
    let late = || Some(Err(StoreError::TimedOut { within: Duration::ZERO }));
    for name in ["alice", "bob"] {
        assert!(matches!(outage.ask(name, late()), Answer::Unconfirmed(_)), "{name}");
    }
    assert!(matches!(outage.ask("carol", late()), Answer::Unavailable(_)));
    assert!(matches!(outage.ask("alice", Some(Ok(true))), Answer::Known(_)));
    outage.fail();
    assert!(matches!(outage.ask("alice", None), Answer::LastKnown(_)), "confirmed again");
}

/// A refusal by name removes the answer by hash as well.
#[test]
fn a_refused_user_is_refused_by_the_other_key_in_an_outage() {
    let state = Arc::new(AtomicU64::new(0));
    let options = DirectoryOptions { store_within: Duration::from_millis(20), ..AT_ONCE };
    let (directory, answered) = start_with(ByState(Arc::clone(&state)), options);
    let by_hash = || UserQuery::Hash(stun_wire::userhash("alice", REALM).unwrap());
    let ask = |user: UserQuery| {
        assert!(directory.find(1, CLIENT, REALM.into(), user));
        answered.recv_timeout(PATIENCE).unwrap().1
    };
    for [first, second] in [[by_hash(), by_name("alice")], [by_name("alice"), by_hash()]] {
        for user in [&first, &second] {
            state.store(0, Ordering::Relaxed);
            eventually("alice is known", || matches!(ask(user.clone()), Answer::Known(_)));
        }
        state.store(1, Ordering::Relaxed);
        assert!(matches!(ask(second), Answer::Unknown));
        state.store(2, Ordering::Relaxed);
        let answer = ask(first);
        assert!(matches!(answer, Answer::Unconfirmed(_)), "{answer:?}");
    }
}

/// Store that has all users in state 0, no users in state 1, and hangs in state 2.
struct ByState(Arc<AtomicU64>);

impl UserReader for ByState {
    fn find(&self, _: &Arc<str>, _: &UserQuery) -> Lookup<Option<UserRecord>> {
        let state = self.0.load(Ordering::Relaxed);
        Box::pin(async move {
            if state == 2 {
                std::future::pending::<()>().await;
            }
            Ok((state == 0).then(some_user))
        })
    }

    fn revision(&self) -> Lookup<u64> {
        let state = self.0.load(Ordering::Relaxed);
        Box::pin(async move { Ok(state) })
    }
}
