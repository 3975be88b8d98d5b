//! The directory: its queue, its cache, and changes made behind its back.
#![expect(clippy::unwrap_used, reason = "in a test, what cannot go on shall stop it")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use support::{TempDir, by_name, user};
use turn_types::Secret;
use user_db::{
    Answer, Directory, DirectoryOptions, NewUser, Page, SqliteStore, StoreError, UserKeys,
    UserQuery, UserRecord, UserStore, UserSummary,
};

const REALM: &str = "example.org";

/// Looks for changes at every question, so that no test has to wait.
const AT_ONCE: DirectoryOptions = DirectoryOptions {
    changes_after: Duration::ZERO,
    known_for: Duration::from_secs(3600),
    unknown_for: Duration::from_secs(3600),
    answer_within: Duration::from_secs(3600),
};

fn start(store: impl UserStore + 'static) -> (Directory<u32>, Receiver<(u32, Answer)>) {
    let (answers, answered) = channel();
    let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
    (Directory::start(Box::new(store), AT_ONCE, deliver).unwrap(), answered)
}

fn ask(
    directory: &Directory<u32>,
    answered: &Receiver<(u32, Answer)>,
    ticket: u32,
    name: &str,
) -> Answer {
    assert!(directory.find(ticket, REALM.into(), by_name(name)));
    let (answered_ticket, answer) = answered.recv().unwrap();
    assert_eq!(answered_ticket, ticket);
    answer
}

#[test]
fn it_sees_users_come_and_go_in_another_process() {
    let dir = TempDir::new();
    let (directory, answered) = start(SqliteStore::open(&dir.database()).unwrap());
    let mut command = SqliteStore::open(&dir.database()).unwrap();

    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Unknown));
    command.add(&user("alice", "old")).unwrap();
    let Answer::Known(old) = ask(&directory, &answered, 2, "alice") else {
        panic!("alice was added")
    };
    command.replace(&user("alice", "new")).unwrap();
    let Answer::Known(new) = ask(&directory, &answered, 3, "alice") else {
        panic!("alice was replaced")
    };
    assert_ne!(old.keys, new.keys);
    command.delete(REALM, "alice").unwrap();
    assert!(matches!(ask(&directory, &answered, 4, "alice"), Answer::Unknown));
}

/// A store that counts what it is asked, waits to be let go on, and says what it is told to.
struct Scripted {
    finds: Arc<AtomicUsize>,
    go_on: Receiver<()>,
    broken: bool,
}

impl Scripted {
    fn new() -> (Self, Arc<AtomicUsize>, Sender<()>) {
        let (let_go_on, go_on) = channel();
        let finds = Arc::new(AtomicUsize::new(0));
        (Self { finds: Arc::clone(&finds), go_on, broken: false }, finds, let_go_on)
    }
}

impl UserStore for Scripted {
    fn has_md5_only(&mut self, _realm: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn add(&mut self, _: &NewUser) -> Result<(), StoreError> {
        unreachable!("a directory adds nobody")
    }

    fn replace(&mut self, _: &NewUser) -> Result<bool, StoreError> {
        unreachable!("a directory replaces nobody")
    }

    fn delete(&mut self, _: &str, _: &str) -> Result<bool, StoreError> {
        unreachable!("a directory deletes nobody")
    }

    fn list(&mut self, _: &Page) -> Result<Vec<UserSummary>, StoreError> {
        unreachable!("a directory lists nobody")
    }

    fn find(&mut self, _: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError> {
        self.finds.fetch_add(1, Ordering::SeqCst);
        self.go_on.recv().expect("the test ends after the directory");
        if self.broken {
            return Err(StoreError::Busy { path: "users.sqlite".into() });
        }
        let UserQuery::Name(name) = user else { return Ok(None) };
        let keys = UserKeys { md5: Secret::new([1; 16]), sha256: None };
        Ok((&**name == "alice").then(|| UserRecord {
            name: name.clone(),
            keys,
            allocations_max: None,
        }))
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

#[test]
fn the_same_question_is_put_to_the_store_once() {
    let (store, finds, let_go_on) = Scripted::new();
    let (directory, answered) = start(store);
    for ticket in 0..100 {
        let name = if ticket % 2 == 0 { "alice" } else { "mallory" };
        assert!(directory.find(ticket, REALM.into(), by_name(name)));
    }
    let_go_on.send(()).unwrap();
    let_go_on.send(()).unwrap();
    for ticket in 0..100 {
        let (answered_ticket, answer) = answered.recv().unwrap();
        assert_eq!(answered_ticket, ticket, "in the order of the questions");
        assert_eq!(matches!(answer, Answer::Known(_)), ticket % 2 == 0);
    }
    assert_eq!(finds.load(Ordering::SeqCst), 2);
}

#[test]
fn what_was_answered_is_known_at_once_until_the_store_is_to_be_asked_for_changes() {
    let (store, finds, let_go_on) = Scripted::new();
    let hour = Duration::from_secs(3600);
    let (answers, answered) = channel();
    let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
    let options = DirectoryOptions { changes_after: hour, ..AT_ONCE };
    let directory = Directory::start(Box::new(store), options, deliver).unwrap();
    let known = |name: &str| directory.known(&REALM.into(), &by_name(name));

    assert_eq!(known("alice"), None, "nobody was asked yet");
    for (ticket, name) in [(1, "alice"), (2, "mallory")] {
        let_go_on.send(()).unwrap();
        ask(&directory, &answered, ticket, name);
    }
    assert_eq!(known("alice").unwrap().unwrap().name, "alice".into());
    assert_eq!(known("mallory"), Some(None));
    assert_eq!(known("bob"), None);
    assert_eq!(finds.load(Ordering::SeqCst), 2);

    let (store, _, let_go_on) = Scripted::new();
    let (directory, answered) = start(store);
    let_go_on.send(()).unwrap();
    ask(&directory, &answered, 1, "alice");
    let known = directory.known(&REALM.into(), &by_name("alice"));
    assert_eq!(known, None, "the store may have changed");
}

#[test]
fn a_full_queue_refuses_at_once_and_what_was_taken_is_answered() {
    let (store, _, let_go_on) = Scripted::new();
    let (directory, answered) = start(store);
    let mut taken = 0;
    while directory.find(taken, REALM.into(), by_name("alice")) {
        taken += 1;
        assert!(taken < 1_000_000, "the queue has no bound");
    }
    let_go_on.send(()).unwrap();
    drop(directory);
    assert_eq!(answered.iter().count(), usize::try_from(taken).unwrap());
}

#[test]
fn a_store_that_cannot_say_is_asked_again() {
    let (store, finds, let_go_on) = Scripted::new();
    let (directory, answered) = start(Scripted { broken: true, ..store });
    for ticket in 0..2 {
        let_go_on.send(()).unwrap();
        let answer = ask(&directory, &answered, ticket, "alice");
        assert!(matches!(answer, Answer::Unavailable(StoreError::Busy { .. })));
    }
    assert_eq!(finds.load(Ordering::SeqCst), 2, "a failure is not kept");
}

#[test]
fn what_nobody_waits_for_any_more_is_not_looked_up() {
    let (store, finds, _) = Scripted::new();
    let (answers, answered) = channel();
    let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
    let options = DirectoryOptions { answer_within: Duration::ZERO, ..AT_ONCE };
    let directory = Directory::start(Box::new(store), options, deliver).unwrap();
    assert!(directory.find(1, REALM.into(), by_name("alice")));
    drop(directory);
    assert!(answered.recv().is_err(), "the question was dropped");
    assert_eq!(finds.load(Ordering::SeqCst), 0);
}
