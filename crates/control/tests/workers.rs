//! The async side against workers made of a closure: each answers on the thread that wakes it.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::{Arc, Mutex};

use control::limits::ANSWER_DEADLINE;
use control::{
    ControlError, Inbox, LockedRegistry, Request, Session, SessionFilter, SessionNames,
    SessionOffload, Wake, WhyNot, WorkerCounters, Workers, mailbox,
};
use turn_proto::{AllocationRecord, SharedRegistry};
use turn_types::{AllocationId, Instant, WorkerId};

/// Reaction of a fake worker to a request.
type Serve = dyn Fn(Request) + Send + Sync;

struct FakeWorker {
    inbox: Mutex<Option<Inbox>>,
    serve: Box<Serve>,
}

impl Wake for FakeWorker {
    fn wake(&self) {
        let inbox = self.inbox.lock().unwrap();
        while let Some(request) = inbox.as_ref().and_then(Inbox::take) {
            (self.serve)(request);
        }
    }
}

fn workers(serve: Vec<Box<Serve>>) -> Workers {
    let members = serve.into_iter().map(|serve| {
        let worker = Arc::new(FakeWorker { inbox: Mutex::new(None), serve });
        let (mailbox, inbox) = mailbox(4, Arc::clone(&worker) as _);
        *worker.inbox.lock().unwrap() = Some(inbox);
        (mailbox, Arc::new(WorkerCounters::new()))
    });
    Workers::new(members.collect())
}

/// A worker that takes requests and keeps them, unanswered.
fn silent() -> Box<Serve> {
    let kept = Mutex::new(Vec::new());
    Box::new(move |request| kept.lock().unwrap().push(request))
}

/// A worker with these allocations, given as user and time of creation.
fn with_sessions(worker: u16, sessions: &'static [(&'static str, u64)]) -> Box<Serve> {
    Box::new(move |request| match request {
        Request::List { filter, limit, reply } => {
            let records = (0..).zip(sessions).map(|(n, &(user, created))| {
                record(AllocationId::new(WorkerId(worker), n), user, created)
            });
            let offload = SessionOffload::Sockets(WhyNot::Off);
            let sessions = records.filter(|record| filter.takes(record)).take(limit);
            reply(sessions.map(|record| Session { record, offload }).collect());
        }
        Request::End { id, reply } => reply(id == AllocationId::new(WorkerId(worker), 0)),
        Request::Show { .. }
        | Request::Refusals { .. }
        | Request::EndUnaccepted { .. }
        | Request::Limit { .. }
        | Request::CountTraffic { .. }
        | Request::Apply { .. }
        | Request::Drain(_)
        | Request::UserFound { .. }
        | Request::Authorized { .. }
        | Request::Stop => {}
    })
}

fn record(id: AllocationId, user: &str, created: u64) -> AllocationRecord {
    let account = user.split(':').next_back().unwrap();
    AllocationRecord {
        id,
        user: user.into(),
        account: account.into(),
        created: Instant::from_nanos(created),
        ..AllocationRecord::sample()
    }
}

#[tokio::test]
async fn sessions_of_all_workers_come_oldest_first_and_bounded() {
    let workers = workers(vec![
        with_sessions(0, &[("a", 10), ("b", 40)]),
        with_sessions(1, &[("1700000000:a", 20), ("c", 30)]),
    ]);
    let created = async |filter, limit| -> Vec<u64> {
        let sessions = workers.sessions(filter, limit).await.unwrap();
        sessions.iter().map(|session| session.record.created.as_nanos()).collect()
    };
    assert_eq!(created(SessionFilter::default(), 10).await, [10, 20, 30, 40]);
    assert_eq!(created(SessionFilter::default(), 3).await, [10, 20, 30]);
    let of_a = SessionFilter { user: Some("a".into()), ..SessionFilter::default() };
    assert_eq!(created(of_a, 10).await, [10, 20], "by user and by account");
}

/// A revocation of a name ends the sessions of all that it refuses, and counts them.
#[tokio::test]
async fn a_name_with_limits_finds_the_same_name_without() {
    let workers = workers(vec![with_sessions(
        0,
        &[
            ("1700000000:a", 10),
            ("1700000000:a?lifetime=600", 20),
            ("a?color=3", 30),
            ("1700000000:b?lifetime=600", 40),
        ],
    )]);
    let created = async |user: &str, names| -> Vec<u64> {
        let filter = SessionFilter { user: Some(user.to_owned()), names, after: None };
        let sessions = workers.all_sessions(&filter).await.unwrap();
        sessions.iter().map(|session| session.record.created.as_nanos()).collect()
    };
    assert_eq!(created("a?lifetime=700", SessionNames::Revocable).await, [10, 20]);
    assert_eq!(created("a", SessionNames::Revocable).await, [10, 20]);
    assert_eq!(created("1700000000:a?lifetime=700", SessionNames::Revocable).await, [10, 20]);
    assert_eq!(created("a?color=3", SessionNames::Revocable).await, [30], "no limits");
    assert!(created("a?lifetime=700", SessionNames::All).await.is_empty());
}

/// The name of a token's key is no user's name: a revocation of it ends no session.
#[test]
fn a_client_with_a_token_is_revoked_by_its_account_or_its_key() {
    let record = AllocationRecord {
        user: "key".into(),
        account: "key#9b8f65607d891ebc".into(),
        is_by_token: true,
        ..AllocationRecord::sample()
    };
    let finds = |user: &str| {
        [SessionNames::All, SessionNames::Revocable, SessionNames::TokenKey].map(|names| {
            SessionFilter { user: Some(user.to_owned()), names, after: None }.takes(&record)
        })
    };
    assert_eq!(finds("key#9b8f65607d891ebc"), [true, true, false]);
    assert_eq!(finds("key"), [true, false, true]);
    assert_eq!(finds("alice"), [false; 3]);
    let renewed = AllocationRecord { renewed_by: Some("key#later".into()), ..record };
    let filter = |user: &str| {
        let user = Some(user.to_owned());
        SessionFilter { user, names: SessionNames::Revocable, after: None }
    };
    assert!(filter("key#later").takes(&renewed) && filter("key#9b8f65607d891ebc").takes(&renewed));
    assert_eq!(renewed.latest_account(), "key#later");
}

#[tokio::test]
async fn a_session_is_ended_by_the_worker_whose_it_is() {
    let workers = workers(vec![with_sessions(0, &[]), with_sessions(1, &[])]);
    let end = async |worker, n| workers.end_session(AllocationId::new(WorkerId(worker), n)).await;
    assert_eq!(end(1, 0).await, Ok(true));
    assert_eq!(end(1, 7).await, Ok(false));
    assert_eq!(end(9, 0).await, Ok(false), "no such worker, so no such session");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_answer_is_named_after_the_deadline() {
    let workers = workers(vec![with_sessions(0, &[]), silent()]);
    let before = tokio::time::Instant::now();
    let result = workers.sessions(SessionFilter::default(), 10).await;
    assert_eq!(result, Err(ControlError::Unresponsive(WorkerId(1))));
    // The timer counts whole milliseconds and rounds up.
    let waited = before.elapsed();
    assert!((ANSWER_DEADLINE..ANSWER_DEADLINE * 2).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_worker_that_drops_the_question_is_stopping() {
    let workers = workers(vec![Box::new(drop)]);
    let result = workers.sessions(SessionFilter::default(), 10).await;
    assert_eq!(result, Err(ControlError::Stopping));
}

#[test]
fn all_workers_are_told_even_if_one_cannot_be() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let note = |worker: u16| -> Box<Serve> {
        let told = Arc::clone(&told);
        Box::new(move |request| told.lock().unwrap().push((worker, format!("{request:?}"))))
    };
    struct Deaf;
    impl Wake for Deaf {
        fn wake(&self) {}
    }
    let (full, _inbox) = mailbox(1, Arc::new(Deaf));
    full.post(Request::Drain(false)).unwrap();
    let (gone, _) = mailbox(1, Arc::new(Deaf));

    let counters = || Arc::new(WorkerCounters::new());
    let heard = Arc::new(FakeWorker { inbox: Mutex::new(None), serve: note(2) });
    let (third, inbox) = mailbox(4, Arc::clone(&heard) as _);
    *heard.inbox.lock().unwrap() = Some(inbox);
    let workers =
        Workers::new(vec![(full, counters()), (gone.clone(), counters()), (third, counters())]);

    assert!(!workers.is_draining());
    assert_eq!(workers.drain(true), Err(ControlError::Unresponsive(WorkerId(0))));
    assert_eq!(workers.stop(), Err(ControlError::Unresponsive(WorkerId(0))));
    assert!(workers.is_draining());
    assert_eq!(*told.lock().unwrap(), [(2, "Drain(true)".into()), (2, "Stop".into())]);

    let gone = Workers::new(vec![(gone, counters())]);
    assert_eq!(gone.stop(), Ok(()), "who is gone has stopped");
    assert_eq!(gone.drain(true), Err(ControlError::Stopping));
}

#[test]
fn the_registry_outlives_a_worker_that_panics_in_it() {
    let registry = LockedRegistry::new();
    let panicking = std::panic::AssertUnwindSafe(|| registry.with(&mut |_| panic!("deliberate")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    let mut opened = 0;
    registry.with(&mut |_| opened += 1);
    assert_eq!(opened, 1);
}
