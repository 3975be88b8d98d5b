//! Dedicated worker for each test, on loopback, with clients and peers.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod data;
pub(crate) mod dtls;
pub(crate) mod end;
pub(crate) mod prefix;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod user;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use control::NoAuthorizer;
use control::{
    Asked, CounterTotals, Fate, Leg, LockedRegistry, Mailbox, RefusalFilter, Reply, Request,
    Series, SessionFilter, UnconfirmedUsers, UserDirectory, UserLookup, WorkerCounters,
};
use dataplane::limits::REQUESTS_PER_TURN;
use dataplane::{
    Admission, ConnectionLimits, DtlsSettings, Listener, LogOptions, NetOptions, SharedSocket,
    StreamSettings, WorkerChannels, WorkerEndpoint, WorkerSpec, mailbox, spawn,
};
use linux_net::{TcpListener, TcpOptions};
use turn_proto::{
    AllocationRecord, AuthPolicy, PeerRules, Policy, Quotas, RelayAddress, RelayPorts,
    UnauthenticatedBudget, User, UserAnswer, UserKeys, UserQuery,
};
use turn_types::{AllocationId, Secret, WorkerId};

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const LOCALHOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// Address of IPv4 peers: another address of this host.
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Address that no host has (RFC 5737). The kernel sends no packet to this address from a loopback
/// address.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Id that no allocation has. A request to end this allocation has no effect.
pub(crate) const NOBODY: AllocationId = AllocationId::new(WorkerId(0), 0xFFFF_FFFF);

pub(crate) const REALM: &str = "example.org";
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "wonderland";

/// Limits with which each address belongs to one customer.
pub(crate) const BY_ADDRESS: ConnectionLimits = ConnectionLimits { total: 0, per_address: 1000 };

/// Maximum wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Running worker.
pub(crate) struct World {
    pub(crate) server: SocketAddr,
    /// Further listeners of the worker.
    pub(crate) also: Vec<SocketAddr>,
    pub(crate) mailbox: Mailbox,
    /// Channels of all workers.
    pub(crate) channels: WorkerChannels,
    pub(crate) directory: Arc<Directory>,
    pub(crate) policy: Policy,
    counters: Arc<WorkerCounters>,
    thread: Option<JoinHandle<()>>,
}

/// Settings of a worker.
pub(crate) struct Start {
    pub(crate) listen: IpAddr,
    /// Further addresses to listen at, each with a separate port.
    pub(crate) also: Vec<IpAddr>,
    pub(crate) policy: Policy,
    pub(crate) net: NetOptions,
    pub(crate) limits: ConnectionLimits,
    pub(crate) tls: Option<turn_session::TlsConfig>,
    pub(crate) dtls: Option<turn_session::dtls::DtlsConfig>,
    pub(crate) proxies: Vec<turn_types::Prefix>,
    pub(crate) acme_redirect: Option<String>,
    /// True if only TLS and DTLS are served.
    pub(crate) only_secure: bool,
}

impl Default for Start {
    fn default() -> Self {
        let limits = ConnectionLimits { total: 0, per_address: 0 };
        Self {
            listen: LOCALHOST,
            also: Vec::new(),
            policy: policy(),
            net: NetOptions::default(),
            limits,
            tls: None,
            dtls: None,
            proxies: vec![],
            acme_redirect: None,
            only_secure: false,
        }
    }
}

/// Opens a UDP and a TCP listener at one port. The system chooses the port for UDP, and the port
/// must be free for TCP.
fn both_on_a_port(ip: IpAddr, net: &NetOptions, options: &TcpOptions) -> (Listener, TcpListener) {
    for _ in 0..100 {
        let (listener, _) = Listener::bind(SocketAddr::new(ip, 0), net).unwrap();
        match TcpListener::bind(listener.local_addr(), options) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            acceptor => return (listener, acceptor.unwrap()),
        }
    }
    panic!("a hundred ports in a row are taken");
}

impl World {
    pub(crate) fn new() -> Self {
        Self::start(Start::default())
    }

    pub(crate) fn start(start: Start) -> Self {
        Self::start_many(start, 1).pop().unwrap()
    }

    /// Starts the workers of one server, each with a separate port, so a client can choose a
    /// worker.
    pub(crate) fn start_many(start: Start, count: u16) -> Vec<Self> {
        let ends: Vec<_> = (0..count).map(|_| mailbox().unwrap()).collect();
        let workers = WorkerChannels::to(ends.iter().map(|(_, endpoint)| endpoint));
        let (policy, registry) = (Arc::new(start.policy), Arc::new(LockedRegistry::new()));
        let (net, long) = (start.net, Duration::from_secs(60));
        let options = TcpOptions {
            reuse_port: true,
            keepalive: long,
            unacknowledged: long,
            backlog: 100,
            device: None,
            free: false,
        };
        let streams = StreamSettings {
            proxies: start.proxies,
            tls: start.tls,
            plain: !start.only_secure,
            acme_redirect: start.acme_redirect,
            admission: Arc::new(Admission::new(start.limits)),
        };
        let admission = Arc::new(Admission::new(start.limits));
        let dtls = DtlsSettings { config: start.dtls, only: start.only_secure, admission };
        let start_one = |(id, (mailbox, endpoint)): (u16, (Mailbox, WorkerEndpoint))| {
            let (listener, acceptor) = both_on_a_port(start.listen, &net, &options);
            let server = listener.local_addr();
            let mut listeners = vec![listener];
            for ip in &start.also {
                listeners.push(Listener::bind(SocketAddr::new(*ip, 0), &net).unwrap().0);
            }
            let also = listeners[1..].iter().map(Listener::local_addr).collect();
            let directory = Arc::new(Directory::default());
            directory.answer_to.set(mailbox.clone()).unwrap();
            let counters = Arc::new(WorkerCounters::new());
            let spec = WorkerSpec {
                id: WorkerId(id),
                started: Duration::ZERO,
                listeners,
                shared: SharedSocket::addresses(&policy, WorkerId(id))
                    .map(|at| SharedSocket::bind(at, &net).unwrap())
                    .collect(),
                acceptors: vec![acceptor],
                streams: streams.clone(),
                dtls: dtls.clone(),
                policy: Arc::clone(&policy),
                registry: Arc::clone(&registry) as _,
                seed: [7; 32],
                directory: Arc::clone(&directory) as _,
                authorizer: Arc::new(NoAuthorizer),
                counters: Arc::clone(&counters),
                endpoint,
                workers: workers.clone(),
                routes: None,
                net: net.clone(),
                log: LogOptions::default(),
            };
            let thread = spawn(spec, None, None).unwrap().built().unwrap().0;
            let (policy, channels) = (Policy::clone(&policy), workers.clone());
            let thread = Some(thread);
            Self { server, also, mailbox, channels, directory, policy, counters, thread }
        };
        (0..count).zip(ends).map(start_one).collect()
    }

    /// Sends a request to the worker, and waits for the reply.
    pub(crate) fn ask<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> Request) -> T {
        let (sender, answer) = mpsc::channel();
        let reply = Box::new(move |value| sender.send(value).unwrap());
        self.mailbox.post(request(reply)).unwrap();
        answer.recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn sessions(&self, filter: SessionFilter) -> Vec<AllocationRecord> {
        let sessions = self.ask(|reply| Request::List { filter, limit: 100, reply });
        sessions.into_iter().map(|session| session.record).collect()
    }

    pub(crate) fn all_sessions(&self) -> Vec<AllocationRecord> {
        self.sessions(SessionFilter::default())
    }

    pub(crate) fn apply(&self, policy: Policy) {
        self.ask(|done| Request::Apply { policy: Arc::new(policy), done });
    }

    /// Returns the worker's counters, after everything that has arrived at the worker's sockets was
    /// processed.
    pub(crate) fn totals(&self) -> CounterTotals {
        // More requests than two iterations serve. So one complete iteration lies between the first
        // and the last request, and everything had arrived before the first request.
        for _ in 0..2 * REQUESTS_PER_TURN {
            let reply = Box::new(drop);
            self.mailbox.post(Request::End { id: NOBODY, reply }).unwrap();
        }
        // A worker replies to this request after a commit as well.
        self.ask(|reply| Request::Refusals { filter: RefusalFilter::default(), limit: 0, reply });
        CounterTotals::of([&*self.counters])
    }

    /// Holds the worker in a request until the sender is dropped.
    pub(crate) fn hold(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        let reply = Box::new(move |_| {
            held.send(()).unwrap();
            // Returns when the sender is dropped.
            let _ = released.recv_timeout(PATIENCE);
        });
        self.mailbox.post(Request::End { id: NOBODY, reply }).unwrap();
        is_held.recv_timeout(PATIENCE).unwrap();
        release
    }

    /// Returns the number of iterations of the worker's loop.
    pub(crate) fn turns(&self) -> u64 {
        self.counters.turns()
    }

    pub(crate) fn count(&self, series: Series) -> u64 {
        self.totals().value(series)
    }

    /// Asserts that every packet has exactly one fate, and is counted once.
    pub(crate) fn assert_adds_up(&self) {
        let totals = self.totals();
        let packets_in = totals.volume(Leg::FromClients).packets
            + totals.volume(Leg::FromPeers).packets
            + totals.value(Series::IcmpErrors);
        let fates: u64 = totals.fates().map(|(_, n)| n).sum();
        let counted: Vec<_> = totals.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(packets_in, fates, "{counted:#?}");
        assert_eq!(totals.volume(Leg::ToPeers).packets, totals.value(Series::Fate(Fate::ToPeer)));
    }

    /// Stops the worker, waits for the thread, and returns the last counters.
    pub(crate) fn stop(mut self) -> CounterTotals {
        let _ = self.mailbox.post(Request::Stop);
        self.thread.take().unwrap().join().unwrap();
        CounterTotals::of([&*self.counters])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.mailbox.post(Request::Stop);
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the worker panicked");
        }
    }
}

/// Users by name. Results are sent immediately, through the mailbox, like the later results of a
/// real directory.
#[derive(Default)]
pub(crate) struct Directory {
    answer_to: OnceLock<Mailbox>,
    /// Look-ups so far.
    pub(crate) asked: Mutex<Vec<UserQuery>>,
    /// True if look-ups are refused.
    pub(crate) full: Mutex<bool>,
    /// True if look-ups are dropped.
    pub(crate) is_silent: Mutex<bool>,
}

impl UserDirectory for Directory {
    fn find(&self, lookup: UserLookup) -> Asked {
        assert_eq!(&*lookup.realm, REALM);
        self.asked.lock().unwrap().push(lookup.user.clone());
        if *self.full.lock().unwrap() {
            return Asked::Refused;
        }
        if *self.is_silent.lock().unwrap() {
            return Asked::Taken;
        }
        let answer = if lookup.user == UserQuery::Name(USER.into()) {
            UserAnswer::Known(alice())
        } else {
            UserAnswer::Unknown
        };
        let found = Request::UserFound { pending: lookup.pending, answer };
        self.answer_to.get().unwrap().post(found).unwrap();
        Asked::Taken
    }

    fn forget(&self, _: &str, _: &str) {}

    fn unconfirmed(&self) -> UnconfirmedUsers {
        UnconfirmedUsers::default()
    }

    fn distrust(&self, _users: &UnconfirmedUsers) {}
}

/// Returns the only user.
pub(crate) fn alice() -> User {
    let md5 = stun_wire::long_term_key_md5(USER, REALM, PASSWORD).unwrap();
    let sha256 = stun_wire::long_term_key_sha256(USER, REALM, PASSWORD).unwrap();
    let keys = UserKeys { md5: Secret::new(md5), sha256: Some(Secret::new(sha256)) };
    User { name: USER.into(), keys, allocations_max: None }
}

/// Returns a relay address of this world only. Tests run in separate processes at the same time,
/// and all worlds draw the same ports.
pub(crate) fn relay_address() -> IpAddr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high.max(1), low, LAST.fetch_add(1, Ordering::Relaxed) + 1])
}

/// Returns rules that relay from loopback addresses of both families. Peers may be at [`PEER`],
/// `::1` and [`NOWHERE`].
pub(crate) fn policy() -> Policy {
    let local = relay_address();
    let relay =
        |ip| RelayAddress { local: ip, public: ip, ports: RelayPorts::new(), is_present: true };
    let allow = ["127.0.0.2/32", "::1/128", "192.0.2.1/32"].map(|prefix| prefix.parse().unwrap());
    Policy {
        relay: vec![relay(local), relay(LOCALHOST_V6)],
        quotas: Quotas {
            allocations_per_user: 0,
            allocations_per_customer: 0,
            new_peers_per_second: 0,
            ..Quotas::default()
        },
        peer_rules: PeerRules::new(&allow, &[], &[LOCALHOST, LOCALHOST_V6, local]),
        unauthenticated: UnauthenticatedBudget { per_second: 0 },
        ..Policy::new(
            REALM.into(),
            AuthPolicy { users: true, ..AuthPolicy::new(Secret::new([9; 32])) },
        )
    }
}
