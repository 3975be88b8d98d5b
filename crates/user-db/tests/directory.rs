//! Tests of the directory: the queue, the cache, look-ups in flight and their deadlines, and
//! changes by other processes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use turn_types::Secret;
use user_db::{
    Answer, Directory, DirectoryOptions, Health, Lookup, LookupClient, SqliteReader, SqliteStore,
    StoreError, UserEditor as _, UserKeys, UserQuery, UserReader, UserRecord,
};

use crate::support::{TempDir, by_name, user};

pub(crate) const REALM: &str = "example.org";

/// Options with a check for changes at every look-up, to avoid waits in tests.
pub(crate) const AT_ONCE: DirectoryOptions = DirectoryOptions {
    changes_after: Duration::ZERO,
    known_for: Duration::from_secs(3600),
    unknown_for: Duration::from_secs(3600),
    unreported_for: Duration::from_secs(3600),
    last_known_for: Duration::from_secs(3600),
    store_within: Duration::from_secs(3600),
    queued_within: Duration::from_secs(3600),
    probe_every: Duration::from_secs(3600),
};

pub(crate) const CLIENT: LookupClient =
    LookupClient { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), has_allocation: false };

fn start(reader: impl UserReader + 'static) -> (Directory<u32>, Receiver<(u32, Answer)>) {
    start_with(reader, AT_ONCE)
}

pub(crate) fn start_with(
    reader: impl UserReader + 'static,
    options: DirectoryOptions,
) -> (Directory<u32>, Receiver<(u32, Answer)>) {
    let (answers, answered) = channel();
    let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
    (Directory::start(Box::new(reader), options, deliver).unwrap(), answered)
}

fn ask(
    directory: &Directory<u32>,
    answered: &Receiver<(u32, Answer)>,
    ticket: u32,
    name: &str,
) -> Answer {
    assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
    let (answered_ticket, answer) = answered.recv().unwrap();
    assert_eq!(answered_ticket, ticket);
    answer
}

#[test]
fn it_sees_users_come_and_go_in_another_process() {
    let dir = TempDir::new();
    let (directory, answered) = start(SqliteReader::open(&dir.database()).unwrap());
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

pub(crate) fn some_user() -> UserRecord {
    let keys = UserKeys { md5: Secret::new([1; 16]), sha256: None };
    UserRecord { name: "alice".into(), keys, allocations_max: None }
}

/// Store whose answers the test provides, in any order.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    waiting: Arc<Mutex<Vec<Waiting>>>,
    pub(crate) revision: Arc<AtomicU64>,
}

/// Name of a look-up, and the sender of the answer.
type Waiting = (Arc<str>, Reply);

type Reply = oneshot::Sender<Result<Option<UserRecord>, StoreError>>;

impl Scripted {
    /// Waits until this number of look-ups have started.
    fn begun(&self, count: usize) {
        while self.waiting.lock().unwrap().len() < count {
            std::thread::yield_now();
        }
    }

    /// Answers the first look-up of this name.
    pub(crate) fn answer(&self, name: &str, answer: Result<bool, StoreError>) {
        let mut waiting = self.waiting.lock().unwrap();
        let is_it = |(waiting, reply): &Waiting| **waiting == *name && !reply.is_closed();
        let at = waiting.iter().position(is_it).unwrap();
        let (name, reply) = waiting.remove(at);
        let user = UserRecord { name, ..some_user() };
        let _ = reply.send(answer.map(|known| known.then_some(user)));
    }

    /// Returns the number of look-ups of this name that were not dropped.
    pub(crate) fn open(&self, name: &str) -> usize {
        let waiting = self.waiting.lock().unwrap();
        waiting.iter().filter(|(waiting, reply)| **waiting == *name && !reply.is_closed()).count()
    }

    /// Waits until a look-up of this name has started.
    pub(crate) fn has_begun(&self, name: &str) {
        while !self.waiting.lock().unwrap().iter().any(|(waiting, _)| **waiting == *name) {
            std::thread::yield_now();
        }
    }
}

impl UserReader for Scripted {
    fn find(&self, _: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let UserQuery::Name(name) = user else { unreachable!("no test looks for a hash") };
        let (reply, answer) = oneshot::channel();
        self.waiting.lock().unwrap().push((Arc::clone(name), reply));
        Box::pin(async { answer.await.expect("the test answers before it ends") })
    }

    fn revision(&self) -> Lookup<u64> {
        let revision = self.revision.load(Ordering::Relaxed);
        Box::pin(async move { Ok(revision) })
    }
}

#[test]
fn many_look_ups_are_answered_while_a_slow_one_holds_up_none() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    for ticket in 0..100 {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(&format!("user{ticket}"))));
    }
    for ticket in (1..100).chain([0]) {
        let name = format!("user{ticket}");
        store.has_begun(&name);
        store.answer(&name, Ok(ticket % 2 == 0));
        let (answered_ticket, answer) = answered.recv().unwrap();
        assert_eq!(answered_ticket, ticket);
        assert_eq!(matches!(answer, Answer::Known(_)), ticket % 2 == 0);
    }
}

/// Store that serves one look-up after the other. Knows alice until the store becomes slow.
#[derive(Clone, Default)]
struct Serial {
    connection: Arc<tokio::sync::Mutex<()>>,
    is_slow: Arc<AtomicBool>,
}

impl UserReader for Serial {
    fn find(&self, _: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let Self { connection, is_slow } = self.clone();
        let is_alice = *user == by_name("alice");
        Box::pin(async move {
            let served = connection.lock_owned().await;
            let is_slow = is_slow.load(Ordering::Relaxed);
            if !is_slow {
                return Ok(is_alice.then(some_user));
            }
            // The store continues to work for a client that has disconnected.
            let worked = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(served);
            });
            worked.await.expect("the store works");
            Ok(None)
        })
    }

    fn revision(&self) -> Lookup<u64> {
        Box::pin(async { Ok(0) })
    }
}

/// A flood of names must not fill a queue in the store, which cannot distinguish clients.
#[test]
fn a_flood_at_a_slow_store_is_no_outage_for_others() {
    let options = DirectoryOptions {
        store_within: Duration::from_secs(2),
        queued_within: Duration::from_secs(2),
        ..AT_ONCE
    };
    let store = Serial::default();
    store.is_slow.store(true, Ordering::Relaxed);
    let (directory, answered) = start_with(store, options);
    for ticket in 1..600 {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(&format!("user{ticket}"))));
    }
    let other = LookupClient { address: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), ..CLIENT };
    assert!(directory.find(0, other, REALM.into(), by_name("alice")));
    let answer = answered.iter().find(|(ticket, _)| *ticket == 0).unwrap().1;
    assert!(matches!(answer, Answer::Unknown), "{answer:?}");
}

/// A fast store becomes slow while many look-ups are in flight, and answers only some of them. An
/// outage would admit a deleted user.
#[test]
fn a_flood_at_a_store_that_becomes_slow_is_no_outage() {
    let second = Duration::from_secs(1);
    let options = DirectoryOptions {
        store_within: second,
        queued_within: second,
        known_for: Duration::ZERO,
        ..AT_ONCE
    };
    let store = Serial::default();
    let (directory, answered) = start_with(store.clone(), options);
    let find = |ticket, name: &str| {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
    };
    for round in 0..40 {
        (0..200).for_each(|number| find(number, &format!("early{round}-{number}")));
        answered.iter().take(200).for_each(drop);
    }
    assert!(matches!(ask(&directory, &answered, 0, "alice"), Answer::Known(_)));

    store.is_slow.store(true, Ordering::Relaxed);
    for ticket in 0..800 {
        find(ticket, &if ticket % 8 == 7 { "alice".into() } else { format!("user{ticket}") });
    }
    let mut late = 0;
    for (ticket, answer) in answered.iter().take(800) {
        late += u32::from(is_overloaded(&answer));
        assert!(matches!(answer, Answer::Unknown | Answer::Overloaded), "{ticket}: {answer:?}");
    }
    assert!(late > 100, "{late}");
}

/// Store with two connections that answers none of its look-ups.
struct Pool(Scripted);

impl UserReader for Pool {
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        self.0.find(realm, user)
    }

    fn revision(&self) -> Lookup<u64> {
        self.0.revision()
    }

    fn concurrent_max(&self) -> usize {
        2
    }
}

/// A limit of this process is not an outage, in which known users are served without the store.
#[test]
fn what_waits_for_a_connection_is_overloaded_and_not_unavailable() {
    let store = Scripted::default();
    let options = DirectoryOptions { queued_within: Duration::from_millis(100), ..AT_ONCE };
    let (directory, answered) = start_with(Pool(store.clone()), options);
    for ticket in 0..10 {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(&format!("user{ticket}"))));
    }
    store.begun(2);
    std::thread::sleep(options.queued_within * 2);
    assert_eq!(store.waiting.lock().unwrap().len(), 2, "as many as there are connections");
    store.answer("user0", Ok(true));
    let (ticket, answer) = answered.recv().unwrap();
    assert!(ticket == 0 && matches!(answer, Answer::Known(_)), "{answer:?}");
    for _ in 2..10 {
        let (ticket, answer) = answered.recv().unwrap();
        assert!(ticket >= 2 && matches!(answer, Answer::Overloaded), "{ticket}: {answer:?}");
    }
    store.answer("user1", Ok(true));
    assert!(matches!(answered.recv().unwrap(), (1, Answer::Known(_))));
}

#[test]
fn the_same_name_is_looked_up_once() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    for ticket in 0..100 {
        let name = if ticket % 2 == 0 { "alice" } else { "mallory" };
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
    }
    store.begun(2);
    store.answer("alice", Ok(true));
    store.answer("mallory", Ok(false));
    let mut tickets: Vec<u32> = (0..100)
        .map(|_| {
            let (ticket, answer) = answered.recv().unwrap();
            assert_eq!(matches!(answer, Answer::Known(_)), ticket % 2 == 0);
            ticket
        })
        .collect();
    tickets.sort_unstable();
    assert!(tickets.into_iter().eq(0..100));
    assert!(store.waiting.lock().unwrap().is_empty());
}

#[test]
fn an_answer_from_before_a_change_reaches_no_later_ticket() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    let find = |ticket, name| assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
    find(1, "alice");
    store.begun(1);
    store.revision.store(1, Ordering::Relaxed);
    find(2, "alice");
    // Bob's look-up starts after the check for changes that ticket 2 has started.
    find(3, "bob");
    store.begun(2);
    store.answer("alice", Ok(false));
    store.begun(2);
    store.answer("alice", Ok(true));
    for ticket in [1, 2] {
        let (answered_ticket, answer) = answered.recv().unwrap();
        assert_eq!(answered_ticket, ticket);
        assert!(matches!(answer, Answer::Known(_)), "{answer:?}");
    }
    store.answer("bob", Ok(false));
}

#[test]
fn a_directory_that_is_dropped_has_closed_its_file() {
    let dir = TempDir::new();
    let (directory, answered) = start(SqliteReader::open(&dir.database()).unwrap());
    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Unknown));
    let log = dir.file("data/users.sqlite-wal");
    assert!(log.exists());
    drop(directory);
    assert!(!log.exists(), "SQLite removes it when the file is closed");
}

/// Store that never answers about alice, and answers about all others immediately.
struct HangsForAlice;

impl UserReader for HangsForAlice {
    fn find(&self, _: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        if *user == by_name("alice") {
            Box::pin(std::future::pending())
        } else {
            Box::pin(std::future::ready(Ok(None)))
        }
    }

    fn revision(&self) -> Lookup<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

/// The client receives error 500, as for a store that fails.
#[test]
fn a_store_that_hangs_is_answered_for_at_the_deadline() {
    let within = Duration::from_millis(20);
    let options = DirectoryOptions { store_within: within, ..AT_ONCE };
    let (directory, answered) = start_with(HangsForAlice, options);
    for ticket in 0..2 {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name("alice")));
    }
    for _ in 0..2 {
        let (_, answer) = answered.recv().unwrap();
        let Answer::Unavailable(error) = answer else { panic!("{answer:?}") };
        assert!(matches!(*error, StoreError::TimedOut { within: w } if w == within), "{error}");
    }
    assert!(matches!(ask(&directory, &answered, 3, "bob"), Answer::Unknown));
}

/// A check for changes that hangs has the deadline of a look-up.
#[test]
fn a_check_for_changes_has_the_same_deadline() {
    struct Hanging;
    impl UserReader for Hanging {
        fn find(&self, _: &Arc<str>, _: &UserQuery) -> Lookup<Option<UserRecord>> {
            Box::pin(std::future::pending())
        }

        fn revision(&self) -> Lookup<u64> {
            Box::pin(std::future::pending())
        }
    }
    let options = DirectoryOptions { store_within: Duration::from_millis(20), ..AT_ONCE };
    let (directory, answered) = start_with(Hanging, options);
    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Unavailable(_)));
    assert!(matches!(ask(&directory, &answered, 2, "alice"), Answer::Unavailable(_)));
}

/// Store that first has every user, and later hangs on command.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicBool>);

impl UserReader for Failing {
    fn find(&self, _: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let user = match user {
            UserQuery::Name(name) => UserRecord { name: Arc::clone(name), ..some_user() },
            UserQuery::Hash(_) => some_user(),
        };
        let hangs = self.0.load(Ordering::Relaxed);
        Box::pin(async move { if hangs { std::future::pending().await } else { Ok(Some(user)) } })
    }

    fn revision(&self) -> Lookup<u64> {
        let hangs = self.0.load(Ordering::Relaxed);
        Box::pin(async move { if hangs { std::future::pending().await } else { Ok(1) } })
    }
}

#[test]
fn cached_users_are_known_while_the_store_hangs() {
    let store = Failing::default();
    let options = DirectoryOptions { store_within: Duration::from_millis(20), ..AT_ONCE };
    let (directory, answered) = start_with(store.clone(), options);
    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Known(_)));
    store.0.store(true, Ordering::Relaxed);
    assert!(matches!(ask(&directory, &answered, 2, "alice"), Answer::Known(_)));
    assert!(matches!(ask(&directory, &answered, 3, "bob"), Answer::Unavailable(_)));
}

/// The operator's order reaches the directory, and the store fails before the next look-up.
#[test]
fn a_user_whom_an_operator_has_changed_is_not_served_in_an_outage() {
    let store = Failing::default();
    let options = DirectoryOptions { store_within: Duration::from_millis(20), ..AT_ONCE };
    let (directory, answered) = start_with(store.clone(), options);
    let by_hash = UserQuery::Hash(stun_wire::userhash("alice", REALM).unwrap());
    let ask_by_hash = |ticket| {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_hash.clone()));
        answered.recv().unwrap().1
    };
    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Known(_)));
    assert!(matches!(ask_by_hash(2), Answer::Known(_)));
    assert!(matches!(ask(&directory, &answered, 3, "bob"), Answer::Known(_)));
    store.0.store(true, Ordering::Relaxed);
    directory.forget(REALM, "alice");
    assert!(directory.known(&REALM.into(), &by_name("alice")).is_none());
    assert!(matches!(ask(&directory, &answered, 4, "alice"), Answer::Unconfirmed(_)));
    assert!(matches!(ask_by_hash(5), Answer::Unconfirmed(_)));
    assert!(matches!(ask(&directory, &answered, 6, "bob"), Answer::LastKnown(_)));

    store.0.store(false, Ordering::Relaxed);
    while !matches!(ask(&directory, &answered, 7, "alice"), Answer::Known(_)) {}
    store.0.store(true, Ordering::Relaxed);
    assert!(matches!(ask(&directory, &answered, 8, "alice"), Answer::Known(_)), "confirmed again");
}

#[test]
fn a_look_up_in_flight_brings_no_changed_user_back() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    for (ticket, name) in [(1, "alice"), (2, "bob")] {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
        store.has_begun(name);
    }
    directory.forget(REALM, "alice");
    store.answer("bob", Ok(true));
    assert!(matches!(answered.recv().unwrap(), (2, Answer::Known(_))), "not repeated");
    store.answer("alice", Ok(true));
    store.has_begun("alice");
    store.answer("alice", Ok(false));
    assert!(matches!(answered.recv().unwrap(), (1, Answer::Unknown)));
    assert!(directory.find(3, CLIENT, REALM.into(), by_name("alice")));
    assert!(matches!(answered.recv().unwrap(), (3, Answer::Unknown)), "nothing else is cached");
}

#[test]
fn failures_of_last_known_users_and_their_end_are_reported() {
    let store = Failing::default();
    let options = DirectoryOptions {
        store_within: Duration::from_millis(20),
        unreported_for: Duration::ZERO,
        known_for: Duration::ZERO,
        ..AT_ONCE
    };
    let (answers, answered) = channel();
    let (reports, reported) = channel();
    let deliver = move |ticket, answer| answers.send((ticket, answer)).unwrap();
    let report = move |health| {
        let _ = reports.send(matches!(health, Health::Failing(_)));
    };
    let reader = Box::new(store.clone());
    let directory = Directory::start_with_health(reader, options, deliver, report).unwrap();
    assert!(matches!(ask(&directory, &answered, 1, "alice"), Answer::Known(_)));
    assert!(reported.try_recv().is_err());
    store.0.store(true, Ordering::Relaxed);
    for ticket in [2, 3] {
        assert!(matches!(ask(&directory, &answered, ticket, "alice"), Answer::LastKnown(_)));
        assert!(reported.recv().unwrap(), "she was the last known one, or a probe failed");
    }
    store.0.store(false, Ordering::Relaxed);
    let mut ticket = 4;
    while reported.try_recv() != Ok(false) {
        assert!(matches!(
            ask(&directory, &answered, ticket, "alice"),
            Answer::Known(_) | Answer::LastKnown(_)
        ));
        ticket += 1;
    }
}

#[test]
fn answers_are_known_at_once_until_the_next_check_for_changes() {
    let store = Scripted::default();
    let hour = Duration::from_secs(3600);
    let options = DirectoryOptions { changes_after: hour, ..AT_ONCE };
    let (directory, answered) = start_with(store.clone(), options);
    let known = |name: &str| directory.known(&REALM.into(), &by_name(name));

    assert_eq!(known("alice"), None, "nothing was looked up yet");
    for (ticket, name, is_user) in [(1, "alice", true), (2, "mallory", false)] {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name(name)));
        store.begun(1);
        store.answer(name, Ok(is_user));
        answered.recv().unwrap();
    }
    assert_eq!(known("alice").unwrap().unwrap().name, Arc::from("alice"));
    assert_eq!(known("mallory"), Some(None));
    assert_eq!(known("bob"), None);

    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    assert!(directory.find(1, CLIENT, REALM.into(), by_name("alice")));
    store.begun(1);
    store.answer("alice", Ok(true));
    answered.recv().unwrap();
    let known = directory.known(&REALM.into(), &by_name("alice"));
    assert_eq!(known, None, "the store may have changed");
}

#[test]
fn a_full_queue_refuses_and_every_look_up_is_answered() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    let (mut asked, mut overloaded) = (0, 0);
    while overloaded == 0 {
        let name = by_name(&format!("user{asked}"));
        assert!(asked < 1_000_000, "the queue has no bound");
        if !directory.find(asked, CLIENT, REALM.into(), name) {
            break;
        }
        asked += 1;
        overloaded += answered.try_iter().filter(|(_, answer)| is_overloaded(answer)).count();
    }
    // Every accepted look-up gets a response, also when the directory is dropped.
    end_answering(directory, &store);
    assert_eq!(answered.iter().count() + overloaded, asked as usize);
}

/// Drops a directory while the store responds to all look-ups.
fn end_answering(directory: Directory<u32>, store: &Scripted) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let first = store.waiting.lock().unwrap().first().map(|(name, _)| name.clone());
                match first {
                    Some(name) => store.answer(&name, Ok(true)),
                    None => std::thread::yield_now(),
                }
            }
        });
        drop(directory);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A flood of names from one site exceeds the capacity of the store. Clients of other sites are
/// served next, and clients with an allocation before all others.
#[test]
fn look_ups_of_other_networks_come_before_a_flood() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    let flooder = |number: u32| LookupClient {
        address: IpAddr::from([0x2001, 0xdb8, 1, number as u16, 0, 0, 0, 1]),
        has_allocation: false,
    };
    for number in 0..2000 {
        let name = by_name(&format!("flood{number}"));
        assert!(directory.find(number, flooder(number), REALM.into(), name));
    }
    let alice = LookupClient { address: [192, 0, 2, 1].into(), has_allocation: false };
    assert!(directory.find(9001, alice, REALM.into(), by_name("alice")));
    let known = LookupClient { has_allocation: true, ..flooder(1) };
    assert!(directory.find(9002, known, REALM.into(), by_name("bob")));
    store.begun(8);
    for (number, next) in ["bob", "alice"].into_iter().enumerate() {
        store.answer(&format!("flood{number}"), Ok(false));
        answered.recv().unwrap();
        store.has_begun(next);
    }
    end_answering(directory, &store);
}

#[test]
fn a_failure_is_not_kept() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    for ticket in 0..2 {
        assert!(directory.find(ticket, CLIENT, REALM.into(), by_name("alice")));
        store.begun(1);
        store.answer("alice", Err(StoreError::TimedOut { within: Duration::ZERO }));
        let (_, answer) = answered.recv().unwrap();
        assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    }
}

/// A limit of this process is not a failure of the store: no last known answer is used.
#[test]
fn what_is_not_asked_for_lack_of_space_or_time_is_overloaded() {
    let store = Scripted::default();
    let (directory, answered) = start(store.clone());
    for result in [Ok(true), Err(StoreError::Overloaded)] {
        assert!(directory.find(1, CLIENT, REALM.into(), by_name("alice")));
        store.begun(1);
        store.answer("alice", result);
        let (_, answer) = answered.recv().unwrap();
        let is_first = matches!(answer, Answer::Known(_));
        assert!(is_first || is_overloaded(&answer), "{answer:?}");
        store.revision.fetch_add(1, Ordering::Relaxed);
    }
    let options = DirectoryOptions { queued_within: Duration::ZERO, ..AT_ONCE };
    let (directory, answered) = start_with(store.clone(), options);
    assert!(directory.find(1, CLIENT, REALM.into(), by_name("alice")));
    assert!(is_overloaded(&answered.recv().unwrap().1));
    assert!(store.waiting.lock().unwrap().is_empty());
}

const fn is_overloaded(answer: &Answer) -> bool {
    matches!(answer, Answer::Overloaded)
}
