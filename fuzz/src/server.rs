//! Target for `turn-proto`: the bytes are a session of several clients, peers and operators with
//! one server, which must not panic and whose every action is checked as in the simulation.

use std::net::SocketAddr;
use std::time::Duration;

use stun_wire::{AttributeType, Message, MessageBuilder, Method};
use turn_proto::{Command, Event, OpenRelayError, PortRange, UserAnswer};
use turn_types::{Instant, Now, PendingId, RelayId, UnixSeconds};

use crate::sim::caller::Caller;
use crate::sim::driver::{Driver, Sent, icmp_report};
use crate::sim::setup::{USERS, addr, look_up, policy};

/// Steps in one session: each costs microseconds, and bugs need few.
const STEPS_MAX: usize = 256;

const CLIENTS: [&str; 4] =
    ["203.0.113.1:5000", "203.0.113.2:5000", "203.0.113.2:5001", "[2001:db8:c::1]:5000"];

const PEERS: [&str; 10] = [
    "192.0.2.10:7000",
    "192.0.2.10:7001",
    "192.0.2.11:7000",
    "[2001:db8:2::10]:7000",
    // Forbidden or unroutable addresses.
    "10.0.0.1:80",
    "127.0.0.1:3478",
    "198.51.100.1:3478",
    "[2001:db8:1::1]:3478",
    "[::ffff:192.0.2.10]:7000",
    "192.0.2.10:0",
];

/// A session. `Session::step` defines the meaning of the bytes.
pub fn server_session(bytes: &[u8]) {
    let mut session = Session::new(bytes);
    for _ in 0..STEPS_MAX {
        if session.input.is_empty() {
            break;
        }
        session.step();
        session.judge();
    }
    session.end();
}

/// Features of the session, for the choice of a corpus: fates of packets, and reasons for ends of
/// allocations.
pub fn features(bytes: &[u8]) -> Vec<String> {
    let mut session = Session::new(bytes);
    for _ in 0..STEPS_MAX {
        if session.input.is_empty() {
            break;
        }
        session.step();
    }
    let fates = session.driver.fates.clone();
    let ended = session.driver.ended_by().keys().map(|reason| format!("{reason:?}"));
    let dropped = fates.dropped.keys().map(|reason| format!("{reason:?}"));
    let answered = session.answers.iter().map(|answer| format!("{answer:?}"));
    ended.chain(dropped).chain(answered).collect()
}

struct Session<'a> {
    input: Input<'a>,
    driver: Driver,
    callers: Vec<Caller>,
    now: Now,
    /// The last packets sent, for duplicates.
    packets: Vec<(usize, Vec<u8>)>,
    /// Relayed addresses and tokens from responses.
    relayed: Vec<SocketAddr>,
    tokens: Vec<[u8; 8]>,
    /// Methods and classes of answered requests.
    answers: Vec<(Method, u16)>,
}

impl<'a> Session<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut input = Input { bytes };
        let mut policy = policy();
        let shape = input.byte();
        if shape & 1 != 0 {
            // So few ports and places that they run out.
            policy.ports = PortRange::new(50_000, 50_003).expect("a range");
            policy.quotas.allocations_per_user = 2;
            policy.quotas.permissions = 2;
            policy.quotas.channels = 1;
        }
        if shape & 2 != 0 {
            policy.auth.open = true;
            policy.unauthenticated.per_second = 20;
        }
        if shape & 4 != 0 {
            policy.auth.secrets.clear();
            policy.auth.userhash = true;
        }
        if shape & 8 != 0 {
            policy.relay.truncate(1);
        }
        let callers = CLIENTS.map(addr).map(|client| Caller::new(client, client.is_ipv6().into()));
        Self {
            input,
            driver: Driver::new(policy, [shape; 32]),
            callers: callers.into(),
            now: Now { instant: Instant::ZERO, unix: UnixSeconds(1_700_000_000) },
            packets: Vec::new(),
            relayed: Vec::new(),
            tokens: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn step(&mut self) {
        let what = self.input.byte() % 16;
        let client = usize::from(self.input.byte()) % CLIENTS.len();
        match what {
            0 => {
                let packet = self.input.take_any();
                self.client_sends(client, packet);
            }
            1..=6 => {
                let packet = self.request(client);
                self.client_sends(client, packet);
            }
            7 => {
                let peer = self.peer();
                let payload = self.input.take_any();
                let packet = self.callers[client].send_indication(peer, &payload);
                self.client_sends(client, packet);
            }
            8 => {
                let mut packet = vec![0x40, self.input.byte() % 4, 0, 0];
                let payload = self.input.take_any();
                packet[3] = payload.len() as u8;
                packet.extend(payload);
                self.client_sends(client, packet);
            }
            9 | 10 => self.peer_sends(),
            11 => self.again(client),
            12 | 13 => self.answer(),
            14 => self.wait(),
            _ => self.operate(client),
        }
    }

    // Actions.

    fn client_sends(&mut self, client: usize, packet: Vec<u8>) {
        let path = self.callers[client].path;
        let sent = self.driver.client(self.now, &path, &packet);
        self.listen(sent);
        self.packets.push((client, packet));
    }

    fn peer_sends(&mut self) {
        let (peer, kind) = (self.peer(), self.input.byte());
        if self.relayed.is_empty() {
            return;
        }
        let relayed = self.relayed[usize::from(self.input.byte()) % self.relayed.len()];
        let sent = if kind % 8 == 0 {
            let report = icmp_report(peer, kind / 8, kind / 16, kind.into());
            self.driver.icmp(self.now, relayed, peer, report)
        } else {
            let payload = self.input.take_any();
            self.driver.late(self.now, relayed, peer, &payload);
            self.driver.peer(self.now, relayed, peer, &payload)
        };
        self.listen(sent);
    }

    /// A packet that was sent before, from here or from somewhere else, perhaps changed.
    fn again(&mut self, client: usize) {
        if self.packets.is_empty() {
            return;
        }
        let at = usize::from(self.input.byte()) % self.packets.len();
        let (first, mut packet) = self.packets[at].clone();
        let client = if client.is_multiple_of(2) { first } else { client };
        for _ in 0..self.input.byte() % 4 {
            let at = usize::from(self.input.byte());
            let bit = 1 << (self.input.byte() % 8);
            if let Some(byte) = packet.get_mut(at) {
                *byte ^= bit;
            }
        }
        self.client_sends(client, packet);
    }

    /// Answers a command, or one that was not issued.
    fn answer(&mut self) {
        let kind = self.input.byte();
        if self.driver.commands.is_empty() {
            let (pending, relay) = (PendingId((kind % 8).into()), RelayId((kind % 8).into()));
            let event = if kind & 8 == 0 {
                Event::UserFound { pending, answer: UserAnswer::Unknown }
            } else {
                let result = Err(OpenRelayError::Exhausted);
                Event::RelayOpened { pending, relay, result }
            };
            let sent = self.driver.answer(self.now, event);
            return self.listen(sent);
        }
        let at = usize::from(kind >> 4) % self.driver.commands.len();
        let event = match (self.driver.commands.remove(at), kind % 16) {
            (Command::FindUser { pending, .. }, 0) => {
                Event::UserFound { pending, answer: UserAnswer::Unavailable }
            }
            (Command::FindUser { pending, user, .. }, _) => {
                Event::UserFound { pending, answer: look_up(&user) }
            }
            (Command::UserOverdue { pending }, _) => {
                Event::UserFound { pending, answer: UserAnswer::Unavailable }
            }
            (Command::OpenRelay { pending, relay, .. }, kind) => {
                let result = match kind {
                    0..=2 => Err(OpenRelayError::PortTaken),
                    3 => Err(OpenRelayError::Exhausted),
                    _ => Ok(()),
                };
                Event::RelayOpened { pending, relay, result }
            }
            (
                Command::CloseRelay { .. }
                | Command::Authorize { .. }
                | Command::SetRoute(_)
                | Command::RemoveRoute(_)
                | Command::SuspendRoutes
                | Command::ResumeRoutes
                | Command::AskWorker { .. }
                | Command::Fetch { .. }
                | Command::HandOver(_)
                | Command::Tcp(_),
                _,
            ) => {
                return;
            }
        };
        let sent = self.driver.answer(self.now, event);
        self.listen(sent);
    }

    fn wait(&mut self) {
        const SECS: [u64; 12] = [0, 1, 2, 29, 30, 41, 299, 300, 301, 599, 600, 3_600];
        let secs = SECS[usize::from(self.input.byte()) % SECS.len()];
        self.pass(secs);
    }

    fn operate(&mut self, client: usize) {
        match self.input.byte() % 4 {
            0 => {
                let ids: Vec<_> = self.driver.server.allocations().map(|one| one.id).collect();
                if !ids.is_empty() {
                    self.driver.end_allocation(self.now, ids[client % ids.len()]);
                }
            }
            1 => self.driver.server.drain(client.is_multiple_of(2)),
            2 => {
                let mut policy = (*self.driver.policy).clone();
                policy.quotas.permissions = 1 + client as u32;
                policy.lifetimes.permission = Duration::from_secs(60 * (1 + client as u64));
                self.driver.apply(self.now, policy);
            }
            _ => {
                let mut policy = (*self.driver.policy).clone();
                let deny = ["192.0.2.10/32", "2001:db8:2::/48", "0.0.0.0/0", "192.0.2.99/32"];
                let deny = deny[client].parse().expect("a prefix");
                policy.peer_rules = turn_proto::PeerRules::new(&[], &[deny], &[]);
                self.driver.apply(self.now, policy);
            }
        }
    }

    // Parts of messages.

    /// A request with any attributes, sealed as the client knows how.
    fn request(&mut self, client: usize) -> Vec<u8> {
        const METHODS: [Method; 6] = [
            Method::BINDING,
            Method::ALLOCATE,
            Method::ALLOCATE,
            Method::REFRESH,
            Method::CREATE_PERMISSION,
            Method::CHANNEL_BIND,
        ];
        let method = METHODS[usize::from(self.input.byte()) % METHODS.len()];
        let user = USERS[usize::from(self.input.byte()) % 2];
        let attributes = self.input.byte();
        let Self { callers, relayed, tokens, input, .. } = self;
        callers[client].request((user, method), |builder| {
            if method == Method::ALLOCATE && attributes & 0x80 == 0 {
                builder.requested_transport(17);
            }
            for _ in 0..attributes % 5 {
                write_attribute(builder, input, relayed, tokens);
            }
        })
    }

    fn peer(&mut self) -> SocketAddr {
        pick_peer(&mut self.input, &self.relayed)
    }

    /// Records nonces, relayed addresses and tokens of the server's responses.
    fn listen(&mut self, sent: Option<Sent>) {
        let Some(sent) = sent else { return };
        let Ok(message) = Message::parse(&sent.payload) else { return };
        let id = message.transaction_id();
        for attribute in message.attributes() {
            match attribute.kind {
                AttributeType::XOR_RELAYED_ADDRESS => {
                    self.relayed.extend(stun_wire::value::xor_address(attribute.value, id).ok());
                }
                AttributeType::RESERVATION_TOKEN => {
                    self.tokens.extend(<[u8; 8]>::try_from(attribute.value));
                }
                _ => {}
            }
        }
        let code = message.first(AttributeType::ERROR_CODE).map(stun_wire::value::error_code);
        let code = code.and_then(Result::ok).map_or(0, |(code, _)| code);
        self.answers.push((message.method(), code));
        let to_it = |caller: &&mut Caller| caller.path.five_tuple.client.0 == sent.to;
        if let Some(caller) = self.callers.iter_mut().find(to_it) {
            caller.hear(&sent.payload);
        }
    }

    // Invariants.

    fn pass(&mut self, secs: u64) {
        self.now.instant = self.now.instant + Duration::from_secs(secs);
        self.now.unix.0 += secs;
        self.serve_timers();
    }

    fn serve_timers(&mut self) {
        if self.driver.server.poll_timeout().is_some_and(|at| at <= self.now.instant) {
            self.driver.timeout(self.now);
        }
    }

    fn judge(&mut self) {
        self.serve_timers();
        if self.driver.policy.auth.open {
            // An open relay grants permissions to any user, which the ledger does not model: here
            // the checks are panics and leaks.
            self.driver.violations.clear();
            return;
        }
        assert_eq!(self.driver.audit(self.now.instant), Ok(()));
    }

    fn end(&mut self) {
        self.driver.end_all(self.now);
        for _ in 0..3 {
            self.pass(3_600);
        }
        assert_eq!(self.driver.is_empty(), Ok(()));
    }
}

fn write_attribute(
    builder: &mut MessageBuilder<'_>,
    input: &mut Input<'_>,
    relayed: &[SocketAddr],
    tokens: &[[u8; 8]],
) {
    match input.byte() % 12 {
        0..=3 => {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, pick_peer(input, relayed));
        }
        4 => {
            let number = 0x4000_u16.wrapping_add_signed((input.byte() as i8 % 3).into());
            let [high, low] = number.to_be_bytes();
            builder.attribute(AttributeType::CHANNEL_NUMBER, &[high, low, 0, 0]);
        }
        5 => {
            const SECS: [u32; 6] = [0, 1, 600, 1_000, 3_600, u32::MAX];
            builder.lifetime(SECS[usize::from(input.byte()) % SECS.len()]);
        }
        6 => {
            builder.requested_address_family(input.byte() % 4);
        }
        7 => {
            builder.additional_address_family(1 + input.byte() % 2);
        }
        8 => {
            builder.even_port(input.byte().is_multiple_of(2));
        }
        9 => {
            let at = usize::from(input.byte());
            builder.reservation_token(*tokens.get(at % tokens.len().max(1)).unwrap_or(&[0; 8]));
        }
        10 => {
            builder.dont_fragment();
        }
        _ => {
            let kind = u16::from_be_bytes([input.byte(), input.byte()]);
            builder.attribute(AttributeType(kind), &input.take_any());
        }
    }
}

fn pick_peer(input: &mut Input<'_>, relayed: &[SocketAddr]) -> SocketAddr {
    let at = usize::from(input.byte());
    match relayed.get(at.wrapping_sub(128)) {
        Some(relayed) => *relayed,
        None => addr(PEERS[at % PEERS.len()]),
    }
}

/// The remaining bytes, followed by zeros.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// A length and as many bytes, or the rest.
    fn take_any(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte() % 128).min(self.bytes.len());
        let (taken, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        taken.to_vec()
    }
}
