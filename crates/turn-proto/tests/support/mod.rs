//! Small world around a [`Server`]: clients with credentials, a user database, peers, and a strict
//! decoder of every response. The relay sockets execute commands immediately, unless the world
//! holds commands.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::wrong_self_convention,
    reason = "the tests' own tools: each test file uses a part of them, and panics are its verdict"
)]

pub mod answer;
pub mod client;
pub mod forge;
mod invariants;
mod notices;
pub mod tcp;
pub mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stun_wire::{LongTermKeys, Message, Method, userhash};
use turn_proto::limits::CONNECTIONS_MAX;
use turn_proto::*;
use turn_types::*;

pub use answer::Reply;
pub use client::{Client, Sealing};

pub const REALM: &str = "turn.example.org";
pub const SEED: [u8; 32] = [7; 32];

/// Listening addresses of the server.
pub const SERVER_V4: &str = "203.0.113.1:3478";
pub const SERVER_V6: &str = "[2001:db8:1::1]:3478";
/// Relay addresses of the server. With [`behind_nat`] the IPv4 address is the public address of a
/// 1:1 NAT.
pub const RELAY_V4: &str = "203.0.113.1";
pub const RELAY_V6: &str = "2001:db8:1::1";

/// Peers that the rules of [`policy`] allow.
pub const PEER: &str = "192.0.2.10:5000";
pub const PEER_V6: &str = "[2001:db8:99::1]:5000";

pub fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn peer(text: &str) -> PeerAddr {
    PeerAddr(addr(text))
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Rules under which the documentation prefixes are peers like any other.
pub fn rules(deny: &[&str]) -> PeerRules {
    let prefixes = |texts: &[&str]| -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let allow = prefixes(&["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"]);
    PeerRules::new(&allow, &prefixes(deny), &[ip(RELAY_V4), ip(RELAY_V6)])
}

/// A server of both families with RFC lifetimes, users, and no limits.
pub fn policy() -> Policy {
    let relay = |address: &str| RelayAddress {
        local: ip(address),
        public: ip(address),
        ports: RelayPorts::new(),
        is_present: true,
    };
    Policy {
        software: Some("Turnpike".into()),
        relay: vec![relay(RELAY_V4), relay(RELAY_V6)],
        lifetimes: Lifetimes { nonce: secs(3600), ..Lifetimes::default() },
        quotas: Quotas { permissions: 64, channels: 64, ..UNLIMITED },
        peer_rules: rules(&[]),
        unauthenticated: UnauthenticatedBudget { per_second: 0 },
        ..Policy::new(
            REALM.into(),
            AuthPolicy { users: true, userhash: true, ..AuthPolicy::new(Secret::new([9; 32])) },
        )
    }
}

/// No limits but the mandatory ones.
pub const UNLIMITED: Quotas = Quotas {
    allocations_per_user: 0,
    allocations_per_customer: 0,
    new_peers_per_second: 0,
    allocations_total: 0,
    stream_allocations: u32::MAX,
    dtls_allocations: u32::MAX,
    peer_connections: CONNECTIONS_MAX,
    permissions: 128,
    channels: 128,
    bytes_per_second: 0,
    bytes_per_second_total: 0,
};

/// Returns the policy with 1:1 NAT.
pub fn behind_nat() -> Policy {
    let mut policy = policy();
    policy.relay[0].local = ip("10.0.0.5");
    let own = [ip("10.0.0.5"), ip(RELAY_V4), ip(RELAY_V6)];
    policy.peer_rules = PeerRules::new(&["192.0.2.0/24".parse().unwrap()], &[], &own);
    policy
}

/// A policy that relays over one address of each family, from these ports.
pub fn with_ports(min: u16, max: u16) -> Policy {
    Policy { ports: PortRange::new(min, max).unwrap(), ..policy() }
}

/// Registry of a single server.
#[derive(Debug, Default)]
pub struct TestRegistry(pub Mutex<Registry>);

impl SharedRegistry for TestRegistry {
    fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
        f(&mut self.0.lock().unwrap());
    }
}

/// The fate of a packet, with its bytes.
#[derive(Clone, Debug)]
pub enum Fate {
    Reply(Vec<u8>),
    /// An answer from another address of ours, or to another port.
    ReplyFrom {
        from: ServerAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    ToPeer {
        from: RelayedAddr,
        to: PeerAddr,
        payload: Vec<u8>,
        meta: IpMeta,
    },
    ToClient {
        to: ClientAddr,
        from: IpAddr,
        bytes: Vec<u8>,
        meta: IpMeta,
    },
    Wait,
    /// The packet waits for the allocation of its client.
    Queued,
    Drop(DropReason),
}

impl Fate {
    pub fn dropped(self) -> DropReason {
        match self {
            Self::Drop(reason) => reason,
            other => panic!("expected a drop, got {other:?}"),
        }
    }

    pub fn reply(self) -> Vec<u8> {
        match self {
            Self::Reply(bytes) => bytes,
            other => panic!("expected a reply, got {other:?}"),
        }
    }

    /// Asserts that the packet waits for the allocation of its client.
    pub fn queued(self) {
        assert!(matches!(self, Self::Queued), "{self:?}");
    }

    /// The payload that goes to a peer.
    pub fn to_peer(self) -> Vec<u8> {
        match self {
            Self::ToPeer { payload, .. } => payload,
            other => panic!("expected a datagram to a peer, got {other:?}"),
        }
    }

    /// The bytes that go to a client.
    pub fn to_client(self) -> Vec<u8> {
        match self {
            Self::ToClient { bytes, .. } => bytes,
            other => panic!("expected a datagram to a client, got {other:?}"),
        }
    }

    pub fn meta(&self) -> IpMeta {
        match self {
            Self::ToPeer { meta, .. } | Self::ToClient { meta, .. } => *meta,
            other => panic!("expected a relayed datagram, got {other:?}"),
        }
    }
}

/// The world.
pub struct World {
    pub server: Server,
    pub policy: Policy,
    pub registry: Arc<TestRegistry>,
    pub now: Now,
    /// Names and passwords.
    pub users: BTreeMap<&'static str, &'static str>,
    pub allocations_max: Option<u32>,
    /// True if the user database cannot be queried.
    pub no_database: bool,
    /// True if the number of waiting look-ups has reached its limit.
    pub database_is_overloaded: bool,
    /// The database failed after it had confirmed the users.
    pub are_last_known: bool,
    /// The user database never answers.
    pub database_hangs: bool,
    /// Answer of the authorizer, if the policy has one, and the queried clients.
    pub authorizer: Authorization,
    pub asked: Vec<Applicant>,
    /// Relay sockets that are open.
    pub sockets: BTreeMap<RelayId, RelayedAddr>,
    /// Routes as reported by the server.
    pub routes: BTreeMap<RouteId, Route>,
    /// Number of commands about them.
    pub route_commands: u32,
    /// True if routes may relay no data.
    pub suspends_routes: bool,
    /// Ports owned by another process on the host.
    pub taken_ports: BTreeSet<u16>,
    /// No relay socket of these families can be opened.
    pub broken: BTreeSet<IpFamily>,
    /// True if commands are stored in `held` instead of carried out.
    pub hold: bool,
    pub held: Vec<Command>,
    /// Commands that concern other workers.
    pub outgoing: Vec<Command>,
    /// Fates of data that waited for its client's allocation, in this order.
    pub after_queue: Vec<Result<(PeerAddr, Vec<u8>), DropReason>>,
    /// Marks of queued packets: true after a wait for a user.
    pub had_waited: Vec<bool>,
    /// True if other workers share the registry and the ports.
    pub is_shared: bool,
    pub opened: u32,
    pub looked_up: u32,
    pub notices: Vec<Notice>,
    /// Buffer of answers.
    pub reply: Box<ReplyBuffer>,
    /// Connections with peers, and the request that waits for one.
    pub connections: BTreeMap<ConnectionId, (PeerAddr, Option<PendingId>)>,
    /// Peers that refuse connections.
    pub refusing: BTreeSet<SocketAddr>,
    /// Peers that do not answer.
    pub silent: BTreeSet<SocketAddr>,
    /// ConnectionBind requests for other workers.
    pub elsewhere: Vec<BindRequest>,
}

impl World {
    pub fn new() -> Self {
        Self::with(policy())
    }

    pub fn with(policy: Policy) -> Self {
        Self::worker(WorkerId(3), policy, Arc::new(TestRegistry::default()))
    }

    /// Returns one of several workers with common rules, ports and registry.
    pub fn worker(worker: WorkerId, policy: Policy, registry: Arc<TestRegistry>) -> Self {
        let config = ServerConfig {
            worker,
            policy: Arc::new(policy.clone()),
            registry: Arc::clone(&registry) as Arc<dyn SharedRegistry>,
            seed: SEED,
            routes: true,
        };
        Self {
            server: Server::new(config),
            policy,
            registry,
            now: Now { instant: Instant::ZERO + secs(1000), unix: UnixSeconds(1_900_000_000) },
            users: [("alice", "wonderland"), ("bob", "builder")].into(),
            allocations_max: None,
            no_database: false,
            database_is_overloaded: false,
            are_last_known: false,
            database_hangs: false,
            authorizer: Authorization::Granted(GrantLimits::default()),
            asked: Vec::new(),
            sockets: BTreeMap::new(),
            routes: BTreeMap::new(),
            route_commands: 0,
            suspends_routes: false,
            taken_ports: BTreeSet::new(),
            broken: BTreeSet::new(),
            hold: false,
            held: Vec::new(),
            outgoing: Vec::new(),
            after_queue: Vec::new(),
            had_waited: Vec::new(),
            is_shared: false,
            opened: 0,
            looked_up: 0,
            notices: Vec::new(),
            reply: Box::new([0; REPLY_MAX]),
            connections: BTreeMap::new(),
            refusing: BTreeSet::new(),
            silent: BTreeSet::new(),
            elsewhere: Vec::new(),
        }
    }

    /// Applies another policy.
    pub fn apply(&mut self, policy: Policy) {
        self.policy = policy.clone();
        self.server.apply(self.now, Arc::new(policy));
        assert!(self.carry_out().is_empty());
    }

    /// Lets time pass, calling the server's timer when it wants to be called.
    pub fn advance(&mut self, by: Duration) {
        assert!(self.advance_and_hear(by).is_empty());
    }

    /// Advances the time, and returns the responses to requests that this completes.
    pub fn advance_and_hear(&mut self, by: Duration) -> Vec<(ClientPath, Vec<u8>)> {
        let mut answers = Vec::new();
        let end = Now {
            instant: self.now.instant + by,
            unix: UnixSeconds(self.now.unix.0 + by.as_secs()),
        };
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= end.instant) {
            self.server.handle_timeout(Now { instant: at.max(self.now.instant), ..end });
            answers.extend(self.carry_out());
            assert!(self.server.poll_timeout().is_none_or(|next| next > at), "time stands still");
        }
        self.now = end;
        self.check();
        answers
    }

    /// Advances the time without the server's timer: deadlines apply without timers.
    pub fn advance_silently(&mut self, by: Duration) {
        self.now.instant = self.now.instant + by;
        self.now.unix = UnixSeconds(self.now.unix.0 + by.as_secs());
    }

    /// A datagram from a client.
    pub fn from_client(&mut self, path: &ClientPath, bytes: &[u8]) -> Fate {
        self.from_client_with(path, IpMeta::DEFAULT, bytes)
    }

    pub fn from_client_with(&mut self, path: &ClientPath, meta: IpMeta, bytes: &[u8]) -> Fate {
        let verdict = self.server.handle_client(self.now, path, meta, bytes, &mut self.reply);
        let fate = match verdict {
            Verdict::Reply { len, error } => {
                let reply = self.reply[..len.into()].to_vec();
                assert_eq!(error, reply[0] & 1 == 1 && reply[1] & 0x10 != 0, "class of {reply:x?}");
                Fate::Reply(reply)
            }
            Verdict::ReplyFrom { len, padding, from, to_port } => {
                let mut bytes = self.reply[..len.into()].to_vec();
                bytes.extend(std::iter::repeat_n(0, padding.into()));
                let to = SocketAddr::new(path.five_tuple.client.ip(), to_port);
                Fate::ReplyFrom { from, to, bytes }
            }
            Verdict::ToPeer { relay, peer, start, len, meta } => {
                let start = usize::from(start);
                Fate::ToPeer {
                    from: self.sockets[&relay],
                    to: peer,
                    payload: bytes[start..start + usize::from(len)].to_vec(),
                    meta,
                }
            }
            Verdict::ToClient { .. } => panic!("a client's packet goes to no client"),
            Verdict::Wait | Verdict::Hold => Fate::Wait,
            Verdict::Queued => Fate::Queued,
            Verdict::Drop(reason) => Fate::Drop(reason),
        };
        let answers = self.carry_out();
        self.check();
        match (fate, answers.as_slice()) {
            (Fate::Wait, [(to, answer)]) => {
                assert_eq!(to, path);
                Fate::Reply(answer.clone())
            }
            (fate, []) => fate,
            (fate, answers) => panic!("{fate:?} and {} answers", answers.len()),
        }
    }

    /// A datagram from a peer to a relayed address.
    pub fn from_peer(&mut self, relayed: SocketAddr, from: &str, payload: &[u8]) -> Fate {
        self.from_peer_with(relayed, from, IpMeta::DEFAULT, payload)
    }

    pub fn from_peer_with(
        &mut self,
        relayed: SocketAddr,
        from: &str,
        meta: IpMeta,
        payload: &[u8],
    ) -> Fate {
        let relay = self.socket_at(relayed);
        let mut header = [0xEE; HEADER_MAX];
        let (now, len) = (self.now, payload.len());
        let verdict = self.server.handle_peer(now, relay, peer(from), meta, len, &mut header);
        // The first datagram of a channel installs its route.
        while let Some(command) = self.server.poll_command() {
            assert_eq!(self.carry_out_one(command), None);
        }
        match verdict {
            Verdict::ToClient { client, from, header: len, padding, meta, .. } => {
                let mut bytes = header[..len.into()].to_vec();
                bytes.extend_from_slice(payload);
                bytes.extend(std::iter::repeat_n(0, padding.into()));
                Fate::ToClient { to: client, from, bytes, meta }
            }
            Verdict::Drop(reason) => Fate::Drop(reason),
            other => panic!("{other:?} for a peer's datagram"),
        }
    }

    /// An ICMP error about a datagram from a relayed address to a peer.
    pub fn icmp(
        &mut self,
        relayed: SocketAddr,
        about: &str,
        (kind, code, data): (u8, u8, u32),
    ) -> Result<(ClientPath, Vec<u8>), DropReason> {
        let relay = self.socket_at(relayed);
        let report = IcmpReport { family: IpFamily::of(relayed.ip()), kind, code, data };
        let (now, reply) = (self.now, &mut self.reply);
        let answer = self.server.handle_icmp(now, relay, peer(about), report, reply)?;
        Ok((answer.to, self.reply[..answer.len.into()].to_vec()))
    }

    /// Returns the open relay socket of a relayed address in public form.
    pub fn socket_at(&self, relayed: SocketAddr) -> RelayId {
        let local = self.policy.relay.iter().find(|relay| relay.public == relayed.ip());
        let local = local.map_or_else(|| relayed.ip(), |relay| relay.local);
        let local = SocketAddr::new(local, relayed.port());
        let found = self.sockets.iter().find(|(_, at)| at.0 == local);
        *found.unwrap_or_else(|| panic!("no socket at {relayed}")).0
    }

    pub fn is_open(&self, relayed: SocketAddr) -> bool {
        self.sockets
            .values()
            .any(|at| at.port() == relayed.port() && at.family() == IpFamily::of(relayed.ip()))
    }

    /// The session record of the only allocation.
    pub fn record(&self) -> AllocationRecord {
        let mut all = self.server.allocations();
        let record = all.next().unwrap();
        assert!(all.next().is_none());
        record
    }

    /// Carries out commands that were held.
    pub fn release(&mut self) -> Vec<(ClientPath, Vec<u8>)> {
        self.hold = false;
        let mut answers = Vec::new();
        for command in std::mem::take(&mut self.held) {
            answers.extend(self.carry_out_one(command));
        }
        answers.extend(self.carry_out());
        answers
    }

    /// Polls everything, and returns the responses to requests that waited.
    pub fn carry_out(&mut self) -> Vec<(ClientPath, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            while let Some(packet) = self.server.poll_queued() {
                answers.extend(self.hand_in_again(&packet));
            }
            let Some(command) = self.server.poll_command() else { break };
            if self.hold {
                self.held.push(command);
            } else {
                answers.extend(self.carry_out_one(command));
            }
        }
        while let Some(notice) = self.server.poll_notice() {
            self.notices.push(notice);
        }
        answers
    }

    /// A packet that has waited for its client's allocation.
    fn hand_in_again(&mut self, packet: &QueuedPacket) -> Option<(ClientPath, Vec<u8>)> {
        let QueuedPacket { path, meta, bytes, has_waited } = packet;
        self.had_waited.push(*has_waited);
        match self.server.handle_client(self.now, path, *meta, bytes, &mut self.reply) {
            Verdict::ToPeer { peer, start, len, .. } => {
                let payload = bytes[start.into()..][..len.into()].to_vec();
                self.after_queue.push(Ok((peer, payload)));
                None
            }
            Verdict::Reply { len, .. } => Some((*path, self.reply[..len.into()].to_vec())),
            Verdict::Wait | Verdict::Queued => None,
            Verdict::Drop(reason) => {
                self.after_queue.push(Err(reason));
                None
            }
            other => panic!("{other:?} for a packet that has waited"),
        }
    }

    /// Carries out a command. Returns the response of the waiting request.
    pub fn carry_out_one(&mut self, command: Command) -> Option<(ClientPath, Vec<u8>)> {
        let event = match command {
            Command::FindUser { pending, realm, user, .. } => {
                self.looked_up += 1;
                if self.database_hangs {
                    return None;
                }
                Event::UserFound { pending, answer: self.find_user(&realm, &user) }
            }
            Command::Authorize { pending, applicant } => {
                self.asked.push(*applicant);
                Event::Authorized { pending, answer: self.authorizer.clone() }
            }
            Command::OpenRelay { pending, relay, at } => {
                self.opened += 1;
                let result = self.bind(relay, at);
                Event::RelayOpened { pending, relay, result }
            }
            Command::CloseRelay { relay } => {
                if let Some(closed) = self.sockets.remove(&relay) {
                    let left = self.routes.values().find(|route| route.relayed == closed);
                    assert_eq!(left, None, "a route outlives its socket");
                }
                return None;
            }
            Command::SetRoute(route) => {
                self.route_commands += 1;
                let open = self.sockets.values().any(|at| *at == route.relayed);
                assert!(open, "{route:?} without a socket");
                let before = self.routes.insert(route.id, *route);
                assert_ne!(before, Some(*route), "told twice");
                return None;
            }
            Command::RemoveRoute(id) => {
                self.route_commands += 1;
                assert!(self.routes.remove(&id).is_some(), "{id:?} was not set, or is gone");
                return None;
            }
            Command::SuspendRoutes => {
                assert!(!self.suspends_routes, "told twice");
                self.suspends_routes = true;
                return None;
            }
            Command::ResumeRoutes => {
                assert!(self.suspends_routes, "told twice");
                self.suspends_routes = false;
                return None;
            }
            Command::Tcp(command) => return self.carry_out_tcp(command),
            Command::UserOverdue { pending } => {
                Event::UserFound { pending, answer: UserAnswer::Unavailable }
            }
            Command::AskWorker { .. } | Command::Fetch { .. } | Command::HandOver(_) => {
                self.outgoing.push(command);
                return None;
            }
        };
        self.handle_event(event)
    }

    fn carry_out_tcp(&mut self, command: TcpCommand) -> Option<(ClientPath, Vec<u8>)> {
        let event = match command {
            TcpCommand::Listen { pending, relay, at } => {
                self.opened += 1;
                let result = self.bind(relay, at);
                Event::RelayOpened { pending, relay, result }
            }
            TcpCommand::Connect { pending, connection, relay, peer } => {
                assert!(self.sockets.contains_key(&relay), "it leaves from a relay that is open");
                if self.silent.contains(&peer.0) {
                    self.connections.insert(connection, (peer, Some(pending)));
                    return None;
                }
                let result = if self.refusing.contains(&peer.0) {
                    Err(ConnectError)
                } else {
                    let before = self.connections.insert(connection, (peer, None));
                    assert!(before.is_none(), "numbers are unique");
                    Ok(())
                };
                Event::PeerConnected { pending, connection, result }
            }
            TcpCommand::Close { connection } => {
                let (_, waiting) = self.connections.remove(&connection).expect("it is closed once");
                let pending = waiting?;
                Event::PeerConnected { pending, connection, result: Err(ConnectError) }
            }
            TcpCommand::Bind(request) if request.owner() != WorkerId(3) => {
                self.elsewhere.push(*request);
                return None;
            }
            TcpCommand::Bind(request) => {
                let answer = self.server.bind_connection(self.now, &request, &mut self.reply)?;
                assert!(answer.held, "its stream was held");
                return Some((answer.to, self.reply[..answer.len.into()].to_vec()));
            }
        };
        self.handle_event(event)
    }

    /// A peer connects to a relayed address.
    pub fn peer_connects(
        &mut self,
        relayed: SocketAddr,
        from: &str,
    ) -> Result<(ConnectionId, Answer, Vec<u8>), PeerRefusal> {
        let relay = self.socket_at(relayed);
        let (now, from) = (self.now, peer(from));
        let made = self.server.handle_peer_connection(now, relay, from, &mut self.reply);
        let (id, answer) = made?;
        assert!(self.connections.insert(id, (from, None)).is_none(), "numbers are unique");
        assert!(self.carry_out().is_empty());
        Ok((id, answer, self.reply[..answer.len.into()].to_vec()))
    }

    pub fn handle_event(&mut self, event: Event) -> Option<(ClientPath, Vec<u8>)> {
        let answer = self.server.handle_event(self.now, event, &mut self.reply)?;
        let method = Message::parse(&self.reply[..answer.len.into()]).unwrap().method();
        assert_eq!(answer.held, method == Method::CONNECTION_BIND, "its stream was held");
        Some((answer.to, self.reply[..answer.len.into()].to_vec()))
    }

    fn bind(&mut self, relay: RelayId, at: RelayedAddr) -> Result<(), OpenRelayError> {
        if self.broken.contains(&at.family()) {
            return Err(OpenRelayError::Exhausted);
        }
        let occupied = self.sockets.values().any(|other| *other == at);
        assert!(!occupied, "{at} is given out twice");
        if self.taken_ports.contains(&at.port()) {
            return Err(OpenRelayError::PortTaken);
        }
        self.sockets.insert(relay, at);
        Ok(())
    }

    fn find_user(&self, realm: &str, query: &UserQuery) -> UserAnswer {
        if self.no_database {
            return UserAnswer::Unavailable;
        }
        if self.database_is_overloaded {
            return UserAnswer::Overloaded;
        }
        let is_meant = |name: &str| match query {
            UserQuery::Name(asked) => **asked == *name,
            UserQuery::Hash(asked) => *asked == userhash(name, realm).unwrap(),
        };
        match self.users.iter().find(|(name, _)| is_meant(name)) {
            Some((name, password)) => {
                let keys = LongTermKeys::new(name, realm, password).unwrap();
                let found = User {
                    name: (*name).into(),
                    keys: UserKeys {
                        md5: Secret::new(keys.md5),
                        sha256: Some(Secret::new(keys.sha256)),
                    },
                    allocations_max: self.allocations_max,
                };
                if self.are_last_known {
                    UserAnswer::LastKnown(found)
                } else {
                    UserAnswer::Known(found)
                }
            }
            None => UserAnswer::Unknown,
        }
    }
}
