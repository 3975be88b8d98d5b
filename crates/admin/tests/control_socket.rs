//! The routes and the client together, over a real Unix socket, against workers that are threads
//! answering from a list.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use admin::types::{Bucket, DrainRequest, ReloadRequest, Trace, Volume};
use admin::{
    Client, ClientError, HttpListener, Other, SessionQuery, UnixSocket, api, routes, serve,
};
use control::{
    CancelReport, CertificateInfo, Change, ConfinementInfo, DrainReport, Handle, Leg,
    MissingAddresses, MonitoringInfo, OffloadInfo, OffloadInterface, OffloadWatch, OperatorRequest,
    Refused, RelayInfo, ReloadReport, Request, Series, ServerInfo, Session, SessionOffload,
    UnreadParts, Wake, WhyNot, WorkerCounters, Workers, mailbox,
};
use turn_proto::{
    AllocationRecord, DeniedBy, DropReason, ForbiddenPeer, Refusal, RefusedRequest, Traffic,
};
use turn_types::{AllocationId, ClientAddr, Instant, WorkerId};

const NOW: Instant = Instant::from_nanos(100_000_000_000);

/// A server of one worker, on a control socket of its own.
struct Server {
    path: PathBuf,
    counters: Arc<WorkerCounters>,
}

struct Knock(mpsc::Sender<()>);

impl Wake for Knock {
    fn wake(&self) {
        let _ = self.0.send(());
    }
}

impl Server {
    /// With these sessions, and a main loop that answers reloads and drains from a script.
    fn start(sessions: Vec<Session>) -> Self {
        Self::watched(sessions, None)
    }

    /// The same, with a kernel path that tells of itself.
    fn watched(sessions: Vec<Session>, offload: Option<Arc<dyn OffloadWatch>>) -> Self {
        let (knock, knocks) = mpsc::channel();
        let (mailbox, inbox) = mailbox(16, Arc::new(Knock(knock)));
        std::thread::spawn(move || {
            let mut sessions = sessions;
            while knocks.recv().is_ok() {
                while let Some(request) = inbox.take() {
                    answer(&mut sessions, request);
                }
            }
        });
        let counters = Arc::new(WorkerCounters::new());
        let workers = Workers::new(vec![(mailbox, Arc::clone(&counters))]);
        let (handle, mut requests) = Handle::new(workers, info());
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                operate(request);
            }
        });
        let path = fresh_directory().join("control.sock");
        let socket = UnixSocket::control(&path, None, Other::Stays).unwrap();
        tokio::spawn(serve(
            HttpListener::Control(socket),
            api::control(&routes::Routes::new(
                handle,
                || NOW,
                offload,
                control::RecentLog::default(),
            )),
        ));
        Self { path, counters }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.path).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.path.parent().unwrap());
    }
}

fn fresh_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("turnpike-admin-{}-{next}", std::process::id()))
}

fn answer(sessions: &mut Vec<Session>, request: Request) {
    match request {
        Request::List { filter, limit, reply } => {
            reply(
                sessions.iter().filter(|s| filter.takes(&s.record)).take(limit).cloned().collect(),
            );
        }
        Request::Show { id, reply } => {
            let found = sessions.iter().find(|session| session.record.id == id);
            reply(found.map(|session| (session.clone(), turn_proto::AllocationPeers::default())));
        }
        Request::End { id, reply } => {
            let before = sessions.len();
            sessions.retain(|session| session.record.id != id);
            reply(sessions.len() < before);
        }
        Request::Refusals { filter, limit, reply } => {
            let all = refusals().into_iter().filter(|one| filter.takes(one));
            reply(all.take(limit).collect());
        }
        Request::CountTraffic { .. }
        | Request::EndUnaccepted { .. }
        | Request::Limit { .. }
        | Request::Apply { .. }
        | Request::Drain(_)
        | Request::UserFound { .. }
        | Request::Authorized { .. }
        | Request::Stop => {
            panic!("the control socket never asks this of a worker")
        }
    }
}

/// Refusals of two users.
fn refusals() -> Vec<Refused> {
    let peer = ForbiddenPeer {
        address: "10.1.1.2".parse().unwrap(),
        by: DeniedBy::SpecialPurpose,
        rule: None,
    };
    let forbidden = RefusedRequest {
        user: Some("1800000000:bob".into()),
        account: Some("bob".into()),
        peer: Some(peer),
        ..RefusedRequest::sample(Refusal::PeerForbidden)
    };
    let mut unknown = RefusedRequest {
        claimed: Some("mallory".into()),
        ..RefusedRequest::sample(Refusal::UnknownUser)
    };
    unknown.path.five_tuple.client = ClientAddr("192.0.2.10:4000".parse().unwrap());
    let (first, last) = (Instant::from_nanos(40_000_000_000), Instant::from_nanos(97_000_000_000));
    vec![
        Refused { last, count: 12, ..Refused::new(forbidden, first) },
        Refused::new(unknown, first),
    ]
}

fn operate(request: OperatorRequest) {
    match request {
        OperatorRequest::Revoke { .. }
        | OperatorRequest::Restore { .. }
        | OperatorRequest::Mint { .. }
        | OperatorRequest::Revocations(_) => {}
        OperatorRequest::Reload { reply, .. } => {
            let change = |key: &str, old: &str, new: &str| Change {
                key: key.into(),
                old: old.into(),
                new: new.into(),
            };
            let report = ReloadReport {
                applied: vec![change("log.level", "info", "debug")],
                needs_restart: vec![change("workers.count", "2", "4")],
                ended: None,
                certificates_kept: Vec::new(),
                refused: None,
            };
            reply.send(report).unwrap();
        }
        OperatorRequest::Drain { deadline, reply } => {
            let deadline = deadline.unwrap_or(Duration::from_secs(77));
            let replaced = Some(Duration::from_secs(9));
            reply.send(DrainReport { deadline, allocations_live: 3, replaced }).unwrap();
        }
        OperatorRequest::CancelDrain(reply) => reply.send(CancelReport::NotDraining).unwrap(),
    }
}

fn info() -> ServerInfo {
    ServerInfo {
        version: "1.2.3".into(),
        started: SystemTime::now() - Duration::from_secs(3600),
        realm: "example.org".into(),
        realms: Vec::new(),
        listeners: vec!["0.0.0.0:3478".parse().unwrap()],
        relay: vec![RelayInfo {
            local: "10.0.0.5".parse().unwrap(),
            public: "203.0.113.7".parse().unwrap(),
            is_present: true,
        }],
        missing: MissingAddresses::default(),
        unread: UnreadParts::default(),
        relay_prefixes: Vec::new(),
        relay_ports: (49152, 65535),
        workers: 1,
        gro: true,
        gso: false,
        offload: OffloadInfo {
            mode: "auto".into(),
            interfaces: vec![interface("eth0", Some("xdp"), "")],
            off_because: None,
            flows_max: 16_384,
            memory_bytes: 9 << 20,
        },
        tls_listeners: vec!["0.0.0.0:5349".parse().unwrap()],
        dtls: true,
        reload_refused: None,
        needs_restart: Vec::new(),
        took_over: None,
        confinement: ConfinementInfo::default(),
        monitoring: MonitoringInfo::default(),
        redirects: Vec::new(),
        certificates: vec![CertificateInfo {
            file: "/etc/chain.pem".into(),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000),
        }],
    }
}

fn interface(name: &str, hook: Option<&str>, why: &str) -> OffloadInterface {
    OffloadInterface { name: name.into(), hook: hook.map(Into::into), why: why.into() }
}

fn session(counter: u64, user: &str, account: &str) -> Session {
    let record = AllocationRecord {
        id: AllocationId::new(WorkerId(0), counter),
        user: user.into(),
        account: account.into(),
        created: Instant::from_nanos(40_000_000_000),
        expires: Instant::from_nanos(640_000_000_000),
        permissions: 2,
        channels: 1,
        traffic: Traffic {
            to_peer_packets: 10,
            to_peer_bytes: 1000,
            to_client_packets: 20,
            to_client_bytes: 4000,
            dropped_packets: 5,
        },
        ..AllocationRecord::sample()
    };
    Session { record, offload: SessionOffload::Sockets(WhyNot::NoChannel) }
}

#[tokio::test]
async fn status_tells_what_happened_and_leaves_out_what_did_not() {
    let server = Server::start(Vec::new());
    server.counters.add(Series::Packets(Leg::FromClients), 12);
    server.counters.add(Series::Bytes(Leg::FromClients), 3400);
    server.counters.add(Series::Drop(DropReason::NoPermission), 4);
    server.counters.add(Series::Refusal(Refusal::WrongPassword), 2);
    server.counters.add(Series::AllocationsLive(turn_types::Transport::Udp), 7);

    let status = server.client().await.status().await.unwrap();

    assert_eq!(status.version, "1.2.3");
    assert!((3600..3660).contains(&status.uptime_seconds), "{}", status.uptime_seconds);
    assert_eq!(status.relay[0].public, "203.0.113.7");
    assert_eq!(status.relay_ports, "49152-65535");
    assert!(status.offload.gro && !status.offload.gso);
    assert_eq!(status.offload.interfaces.len(), 1, "as of the start, when nobody watches");
    assert_eq!(status.offload.passed, BTreeMap::new());
    assert_eq!(status.allocations.live, 7);
    assert_eq!(status.traffic.from_clients, Volume { packets: 12, bytes: 3400 });
    assert_eq!(status.drops, BTreeMap::from([("no_permission".to_owned(), 4)]));
    assert_eq!(status.refusals, BTreeMap::from([("wrong_password".to_owned(), 2)]));
    assert_eq!(status.fates, BTreeMap::from([("dropped".to_owned(), 4)]));
    let buckets = &status.occupancy["received_segments"];
    assert_eq!(buckets[0], Bucket { up_to: Some(1), count: 0 });
    assert_eq!(buckets.last().unwrap().up_to, None);
}

/// A kernel path as it is a while after the start.
struct Watch;

impl OffloadWatch for Watch {
    fn idle_because(&self) -> Option<String> {
        None
    }

    fn settings(&self) -> Vec<String> {
        vec!["net.ipv4.conf.lo.forwarding".into()]
    }

    fn interfaces(&self) -> Vec<OffloadInterface> {
        vec![interface("eth0", Some("xdp"), ""), interface("tun0", None, "no Ethernet frames")]
    }

    fn passed(&self) -> Vec<(&'static str, u64)> {
        vec![("refresh", 9), ("no_route", 0)]
    }

    fn partial_checksums(&self) -> u64 {
        5
    }

    fn redirects_lost(&self) -> Option<u64> {
        Some(3)
    }
}

#[tokio::test]
async fn status_tells_what_the_kernel_relays_as_of_now() {
    let server = Server::watched(Vec::new(), Some(Arc::new(Watch)));
    server.counters.add(Series::Packets(Leg::FromClients), 12);
    server.counters.add(Series::Bytes(Leg::FromClients), 3400);
    server.counters.add(Series::Offloaded(Leg::FromClients), 1000);
    server.counters.add(Series::OffloadedBytes(Leg::FromClients), 200_000);
    server.counters.add(Series::Offloaded(Leg::ToPeers), 999);
    server.counters.set(Series::FlowsOffloaded, 3);

    let status = server.client().await.status().await.unwrap();

    let offload = &status.offload;
    assert_eq!((offload.mode.as_str(), offload.off_because.as_ref()), ("auto", None));
    assert_eq!((offload.flows, offload.flows_max, offload.memory_bytes), (3, 16_384, 9 << 20));
    let names: Vec<_> = offload.interfaces.iter().map(|i| (&*i.name, i.hook.as_deref())).collect();
    assert_eq!(names, [("eth0", Some("xdp")), ("tun0", None)], "those of now, not of the start");
    assert_eq!(offload.interfaces[1].why, "no Ethernet frames");
    assert_eq!(offload.settings, ["net.ipv4.conf.lo.forwarding"]);
    assert_eq!(offload.passed, BTreeMap::from([("refresh".to_owned(), 9)]));
    assert_eq!((offload.partial_checksums, offload.redirects_lost), (5, Some(3)));
    assert_eq!(offload.by_sockets.from_clients, Volume { packets: 12, bytes: 3400 });
    assert_eq!(offload.by_kernel.from_clients, Volume { packets: 1000, bytes: 200_000 });
    assert_eq!(offload.by_kernel.to_peers.packets, 999);
    let whole = Volume { packets: 1012, bytes: 203_400 };
    assert_eq!(status.traffic.from_clients, whole, "both ways together");
}

#[tokio::test]
async fn a_session_tells_what_relays_for_it() {
    let by_kernel = SessionOffload::Kernel {
        channels: 1,
        packets: 30,
        bytes: 5000,
        last_seen: Some(Instant::from_nanos(97_500_000_000)),
    };
    let server = Server::start(vec![
        Session { offload: by_kernel, ..session(1, "bob", "bob") },
        Session { offload: SessionOffload::Sockets(WhyNot::Full), ..session(2, "bob", "bob") },
    ]);

    let listed = server.client().await.sessions(None, 9).await.unwrap().sessions;

    let kernel = admin::types::SessionOffload {
        by: "kernel".into(),
        reason: None,
        channels: 1,
        packets: 30,
        bytes: 5000,
        last_seen_seconds_ago: Some(2),
    };
    assert_eq!(listed[0].offload, kernel);
    assert_eq!((listed[0].relays.as_str(), listed[0].connections), ("udp", 0));
    let sockets = &listed[1].offload;
    assert_eq!((sockets.by.as_str(), sockets.reason.as_deref()), ("sockets", Some("full")));
    assert_eq!((sockets.channels, sockets.last_seen_seconds_ago), (0, None));
}

#[tokio::test]
async fn traces_are_added_listed_bounded_and_ended() {
    let server = Server::start(Vec::new());
    let mut client = server.client().await;
    let alice = Trace { client: None, user: Some("alice".into()), seconds: 600 };
    let network = Trace { client: Some("192.0.2.0/24".into()), user: None, seconds: 60 };
    client.add_trace(&alice).await.unwrap();
    let both = client.add_trace(&network).await.unwrap();
    assert_eq!(both.traces, [alice.clone(), network.clone()]);
    for wrong in [
        Trace { client: Some("192.0.2.1/24".into()), ..network.clone() },
        Trace { seconds: 0, ..alice.clone() },
        Trace { seconds: 86_401, ..alice.clone() },
    ] {
        let refused = client.add_trace(&wrong).await.unwrap_err().to_string();
        assert!(!refused.is_empty() && client.traces().await.unwrap() == both, "{wrong:?}");
    }
    for number in 2..control::limits::TRACES_MAX {
        let user = Some(number.to_string());
        client.add_trace(&Trace { user, ..alice.clone() }).await.unwrap();
    }
    let user = Some("one more".to_owned());
    assert!(client.add_trace(&Trace { user, ..alice }).await.is_err());
    assert_eq!(client.clear_traces().await.unwrap().traces, []);
}

#[tokio::test]
async fn refusals_are_explained_filtered_and_bounded() {
    let server = Server::start(Vec::new());
    let mut client = server.client().await;
    let all = client.refusals(None, None, 9).await.unwrap();
    assert_eq!((all.refusals.len(), all.more), (2, false));
    let bob = &all.refusals[0];
    assert_eq!((bob.seconds_ago, bob.first_seconds_ago, bob.count), (3, 60, 12));
    assert_eq!((bob.client.as_str(), bob.transport.as_str()), ("192.0.2.9:4000", "udp"));
    assert_eq!((bob.method.as_str(), bob.code), ("CreatePermission", 403));
    assert_eq!(bob.user.as_deref(), Some("1800000000:bob"));
    assert_eq!(bob.peer.as_deref(), Some("10.1.1.2"));
    assert_eq!(bob.denied_by.as_deref(), Some("special_purpose"));
    assert_eq!(bob.reason, "peer_forbidden");
    assert!(bob.advice.contains("peers.allow"), "{bob:?}");

    let some = client.refusals(None, None, 1).await.unwrap();
    assert_eq!((some.refusals.len(), some.more), (1, true));
    let of = client.refusals(Some("bob"), None, 9).await.unwrap().refusals;
    assert_eq!(of, std::slice::from_ref(bob));
    let of = client.refusals(Some("mallory"), None, 9).await.unwrap().refusals;
    assert_eq!((of.len(), of[0].user.as_deref()), (1, None), "the name was only claimed");
    let at = client.refusals(None, Some("192.0.2.10".parse().unwrap()), 9).await.unwrap();
    assert_eq!(at.refusals, of);
}

#[tokio::test]
async fn sessions_are_listed_filtered_bounded_and_ended() {
    let server = Server::start(vec![
        session(1, "1800000000:bob", "bob"),
        session(2, "alice & co", "alice & co"),
        session(3, "1800000001:bob", "bob"),
    ]);
    let mut client = server.client().await;

    let all = client.sessions(None, 100).await.unwrap();
    assert_eq!((all.sessions.len(), all.more), (3, false));
    let first = &all.sessions[0];
    assert_eq!(first.id, "0000000000000001");
    assert_eq!((first.age_seconds, first.expires_in_seconds), (60, 540));
    assert_eq!(first.client, "192.0.2.9:4000");
    assert_eq!(first.relayed, ["203.0.113.7:50000"]);
    assert_eq!(first.to_client, Volume { packets: 20, bytes: 4000 });

    let some = client.sessions(None, 2).await.unwrap();
    assert_eq!((some.sessions.len(), some.more), (2, true));
    assert_eq!(client.sessions(Some("bob"), 2).await.unwrap().sessions.len(), 2);
    assert_eq!(client.sessions(Some("alice & co"), 2).await.unwrap().sessions.len(), 1);

    assert_eq!(client.end_session(&first.id).await.unwrap().id, first.id);
    assert_eq!(client.sessions(Some("bob"), 9).await.unwrap().sessions.len(), 1);
    for (id, status_expected) in
        [(first.id.as_str(), 404), ("7", 400), ("../status", 400), ("0009000000000001", 404)]
    {
        match client.end_session(id).await {
            Err(ClientError::Refused { status, problem }) => {
                assert_eq!(status, status_expected, "{id}");
                assert!(!problem.hint.is_empty());
            }
            other => panic!("{id}: {other:?}"),
        }
    }
    for limit in [0, 1001] {
        let error = client.sessions(None, limit).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 400, .. }), "{limit}: {error}");
    }
}

/// Users of the sessions on all pages, each of `limit`, and the number of pages.
async fn pages(server: &Server, query: SessionQuery) -> (Vec<String>, usize) {
    let mut client = server.client().await;
    let (mut query, mut users, mut pages) = (query, Vec::new(), 0);
    loop {
        let page = client.session_page(&query).await.unwrap();
        assert!(page.sessions.len() <= query.limit);
        assert_eq!(page.more, page.next.is_some());
        users.extend(page.sessions.iter().map(|session| session.user.clone()));
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            return (users, pages);
        }
    }
}

#[tokio::test]
async fn any_number_of_sessions_is_listed_page_by_page() {
    let sessions: Vec<_> = (0..2500).map(|n| session(n, &format!("u{n}"), "u")).collect();
    let server = Server::start(sessions);
    let (users, count) = pages(&server, SessionQuery { limit: 1000, ..query("age") }).await;
    assert_eq!(count, 3);
    let all: Vec<_> = (0..2500).map(|n| format!("u{n}")).collect();
    assert_eq!(users, all);
    let page = server.client().await.session_page(&query("age")).await.unwrap();
    assert_eq!((page.sessions.len(), page.total), (100, 2500));
}

fn query(sort: &str) -> SessionQuery {
    SessionQuery { sort: Some(sort.into()), ..SessionQuery::default() }
}

#[tokio::test]
async fn sessions_are_sorted_and_filtered_by_the_server() {
    let mut sessions =
        vec![session(1, "bob", "bob"), session(2, "éva", "éva"), session(3, "al", "al")];
    sessions[1].record.traffic.to_peer_bytes = 9_000;
    sessions[2].record.five_tuple.client = ClientAddr("[2001:db8::1]:7".parse().unwrap());
    // As a number before the others, as a text behind them.
    sessions[1].record.five_tuple.client = ClientAddr("9.0.0.1:5".parse().unwrap());
    sessions[0].record.realm = "b.example.org".into();
    let server = Server::start(sessions);
    let one = |query: SessionQuery| pages(&server, SessionQuery { limit: 1, ..query });
    for (sort, users) in [
        ("age", ["bob", "éva", "al"]),
        ("user", ["al", "bob", "éva"]),
        ("-user", ["éva", "bob", "al"]),
        ("traffic", ["éva", "bob", "al"]),
        ("client", ["éva", "bob", "al"]),
        ("-client", ["al", "bob", "éva"]),
        ("rate", ["bob", "éva", "al"]),
    ] {
        assert_eq!(one(query(sort)).await.0, users, "{sort}");
    }
    for (text, users) in [("Év", vec!["éva"]), ("2001:DB8", vec!["al"]), ("none", vec![])] {
        let filtered = SessionQuery { filter: Some(text.into()), ..query("age") };
        assert_eq!(one(filtered).await.0, users, "{text}");
    }
    let at = SessionQuery { client: Some("2001:db8::1".parse().unwrap()), ..query("age") };
    assert_eq!(one(at).await.0, ["al"]);
    let of = |realm: &str| SessionQuery { realm: Some(realm.into()), ..query("user") };
    assert_eq!(one(of("b.example.org")).await.0, ["bob"]);
    assert_eq!(one(of("example.org")).await.0, ["al", "éva"]);
    assert_eq!(one(of("example")).await.0, [""; 0], "the whole name");
    for wrong in [
        query("height"),
        SessionQuery { after: Some("1".into()), ..query("age") },
        SessionQuery { filter: Some("x".repeat(513)), ..query("age") },
    ] {
        let error = server.client().await.session_page(&wrong).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 400, .. }), "{wrong:?}: {error}");
    }
}

#[tokio::test]
async fn rates_are_of_the_last_seconds() {
    let server = Server::start(vec![session(1, "bob", "bob")]);
    let with_rates = SessionQuery { rates: true, ..SessionQuery::default() };
    let page = server.client().await.session_page(&with_rates).await.unwrap();
    let rates = page.sessions[0].rates.unwrap();
    assert_eq!((rates.to_peers.bits_per_second, rates.to_client.packets_per_second), (0, 0));
    let without = server.client().await.session_page(&SessionQuery::default()).await.unwrap();
    assert_eq!(without.sessions[0].rates, None);
}

#[tokio::test]
async fn reload_and_drain_reach_the_main_loop() {
    let server = Server::start(Vec::new());
    let mut client = server.client().await;
    let reload = client.reload(ReloadRequest::default()).await.unwrap();
    assert_eq!(reload.applied[0].key, "log.level");
    assert_eq!(reload.needs_restart[0].new, "4");
    assert_eq!(reload.refused, None);

    let drain = client.drain(DrainRequest { deadline_seconds: Some(5) }).await.unwrap();
    assert_eq!((drain.deadline_seconds, drain.allocations_live), (5, 3));
    assert_eq!(drain.replaced_seconds_left, Some(9));
    match client.cancel_drain().await {
        Err(ClientError::Refused { status: 409, problem }) => {
            assert!(problem.error.contains("does not drain"), "{problem:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.drain(DrainRequest::default()).await.unwrap().deadline_seconds, 77);
    let week = DrainRequest { deadline_seconds: Some(604_800) };
    assert_eq!(client.drain(week).await.unwrap().deadline_seconds, 604_800);
    let more = DrainRequest { deadline_seconds: Some(604_801) };
    match client.drain(more).await {
        Err(ClientError::Refused { status: 400, problem }) => {
            assert!(problem.error.contains("at most 604800"), "{problem:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Sends raw bytes and gives the status line and body of the answer.
fn raw(path: &Path, request: &str) -> (String, String) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_is_answered_with_an_error_and_a_hint() {
    let server = Server::start(Vec::new());
    let path = server.path.clone();
    let end = "Host: x\r\nConnection: close\r\n";
    let large = "x".repeat(admin::limits::REQUEST_BYTES_MAX + 1);
    let cases = [
        (format!("GET /nothing HTTP/1.1\r\n{end}\r\n"), "404"),
        (format!("POST /v1/status HTTP/1.1\r\n{end}\r\n"), "405"),
        // A browser that was led through a tunnel to the socket.
        (
            "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".into(),
            "403",
        ),
        (format!("POST /v1/reload HTTP/1.1\r\n{end}Origin: https://evil.example\r\n\r\n"), "403"),
        (format!("GET /v1/status HTTP/1.1\r\n{end}Sec-Fetch-Site: cross-site\r\n\r\n"), "403"),
        (format!("GET /v1/sessions?limit=many HTTP/1.1\r\n{end}\r\n"), "400"),
        (format!("GET /v1/sessions?usr=bob HTTP/1.1\r\n{end}\r\n"), "400"),
        (format!("POST /v1/drain HTTP/1.1\r\n{end}Content-Length: 3\r\n\r\n{{a}}"), "400"),
        (
            format!(
                "POST /v1/drain HTTP/1.1\r\n{end}Content-Length: {}\r\n\r\n{large}",
                large.len()
            ),
            "400",
        ),
    ];
    tokio::task::spawn_blocking(move || {
        for (request, status) in cases {
            let (line, body) = raw(&path, &request);
            assert!(line.contains(status), "{line} for {}", &request[..40]);
            let problem: admin::types::Problem = serde_json::from_str(&body).unwrap();
            assert!(!problem.error.is_empty() && !problem.hint.is_empty(), "{body}");
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_from_one_that_refuses() {
    let server = Server::start(Vec::new());
    let path = server.path.clone();
    drop(std::fs::remove_file(&path));
    let error = Client::connect(&path).await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
}
