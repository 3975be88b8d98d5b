//! The hosts of a simulated world: the server, clients, peers, and those who mean harm.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use netsim::{Body, Chance, Host, Outbox, Packet, Rng};
use stun_wire::ChannelNumber;
use turn_client::{
    AllocateOptions, Client, EvenPort, Event as ClientEvent, Families, Incoming, RequestKind,
};
use turn_proto::{Command, Event, OpenRelayError, Policy, UserAnswer};
use turn_types::{Instant, IpFamily, Now, PeerAddr, PendingId};

use crate::sim::driver::{Driver, Sent, icmp_report};
use crate::sim::setup::{listeners, look_up};

/// What travels past the server, for those who listen in.
#[derive(Debug, Default)]
pub struct Tap {
    packets: VecDeque<Packet>,
    relays: VecDeque<SocketAddr>,
}

const TAP_MAX: usize = 64;

impl Tap {
    fn see(&mut self, packet: &Packet) {
        if self.packets.len() == TAP_MAX {
            self.packets.pop_front();
        }
        self.packets.push_back(packet.clone());
        let listener = listeners().iter().any(|listener| listener.0 == packet.dst);
        if !listener && !self.relays.contains(&packet.dst) {
            if self.relays.len() == TAP_MAX {
                self.relays.pop_front();
            }
            self.relays.push_back(packet.dst);
        }
    }
}

pub type SharedTap = Rc<RefCell<Tap>>;

/// One host of any kind.
pub enum Node {
    Server(Box<ServerNode>),
    Client(Box<ClientNode>),
    Peer(PeerNode),
    Hostile(HostileNode),
}

impl Host for Node {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.receive(now, packet, out),
            Self::Client(client) => client.receive(now, packet, out),
            Self::Peer(peer) => peer.receive(packet, out),
            Self::Hostile(_) => {}
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.wake(now, out),
            Self::Client(client) => client.wake(now, out),
            Self::Peer(peer) => peer.wake(now, out),
            Self::Hostile(hostile) => hostile.wake(now, out),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.next_wake(),
            Self::Client(client) => client.next_wake(),
            Self::Peer(peer) => peer.next,
            Self::Hostile(hostile) => hostile.next,
        }
    }
}

/// How the server's surroundings behave.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The longest that a look-up or the opening of a socket takes.
    pub delay_max: Duration,
    /// A port turns out to be somebody else's.
    pub port_taken: Chance,
    /// No socket can be opened.
    pub exhausted: Chance,
    /// The user database cannot say.
    pub unavailable: Chance,
    /// No answer ever comes.
    pub silent: Chance,
}

pub struct ServerNode {
    pub driver: Driver,
    surroundings: Surroundings,
    rng: Rng,
    tap: SharedTap,
    /// Answers to commands that are on their way.
    answers: Vec<(Instant, Event)>,
    pub violation: Option<String>,
}

impl ServerNode {
    pub fn new(policy: Policy, surroundings: Surroundings, mut rng: Rng, tap: SharedTap) -> Self {
        let driver = Driver::new(policy, rng.seed_32());
        Self { driver, surroundings, rng, tap, answers: Vec::new(), violation: None }
    }

    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        self.tap.borrow_mut().see(&packet);
        let listener = listeners().iter().position(|listener| listener.0 == packet.dst);
        let sent = match (&packet.body, listener) {
            (Body::Udp(payload), Some(listener)) => {
                let path = Driver::path(packet.src, listener);
                self.driver.client(now, &path, payload)
            }
            (Body::Udp(payload), None) if self.driver.is_open(packet.dst) => {
                self.driver.peer(now, packet.dst, packet.src, payload)
            }
            (Body::Udp(payload), None) => {
                self.driver.late(now, packet.dst, packet.src, payload);
                packet.port_unreachable().into_iter().for_each(|error| out.send(error));
                None
            }
            (Body::Icmp(icmp), _) => {
                let report = icmp_report(icmp.about_dst, icmp.kind, icmp.code, icmp.data);
                self.driver.icmp(now, icmp.about_src, icmp.about_dst, report)
            }
        };
        self.after(now, sent, out);
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.driver.server.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.driver.timeout(now);
            self.after(now, None, out);
        }
        while let Some(at) = self.answers.iter().position(|(at, _)| *at <= now.instant) {
            let (_, event) = self.answers.remove(at);
            let sent = self.driver.answer(now, event);
            self.after(now, sent, out);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let answers = self.answers.iter().map(|(at, _)| *at).min();
        [answers, self.driver.server.poll_timeout()].into_iter().flatten().min()
    }

    /// Acts on the server from outside: an operator.
    pub fn operate(&mut self, now: Now, act: impl FnOnce(&mut Driver), out: &mut Outbox) {
        act(&mut self.driver);
        self.after(now, None, out);
    }

    fn after(&mut self, now: Now, sent: Option<Sent>, out: &mut Outbox) {
        if let Some(Sent { from, to, payload, dont_fragment }) = sent {
            out.send(Packet { src: from, dst: to, body: Body::Udp(payload), dont_fragment });
        }
        for command in std::mem::take(&mut self.driver.commands) {
            let at = now.instant + self.rng.duration_below(self.surroundings.delay_max);
            if !self.rng.happens(self.surroundings.silent) {
                let answer = self.answer_to(command);
                self.answers.extend(answer.map(|answer| (at, answer)));
            }
        }
        if let Err(why) = self.driver.audit(now.instant) {
            self.violation.get_or_insert(why);
        }
    }

    fn answer_to(&mut self, command: Command) -> Option<Event> {
        let Surroundings { port_taken, exhausted, unavailable, .. } = self.surroundings;
        match command {
            Command::FindUser { pending, user, .. } => {
                let answer = if self.rng.happens(unavailable) {
                    UserAnswer::Unavailable
                } else {
                    look_up(&user)
                };
                Some(Event::UserFound { pending, answer })
            }
            Command::OpenRelay { pending, relay, .. } => {
                let result = if self.rng.happens(port_taken) {
                    Err(OpenRelayError::PortTaken)
                } else if self.rng.happens(exhausted) {
                    Err(OpenRelayError::Exhausted)
                } else {
                    Ok(())
                };
                Some(Event::RelayOpened { pending, relay, result })
            }
            Command::CloseRelay { .. } => None,
        }
    }

    /// An answer to a request that never was, as a confused user database would give it.
    pub fn confuse(&mut self, now: Now, pending: PendingId, out: &mut Outbox) {
        let answer = UserAnswer::Unknown;
        let sent = self.driver.answer(now, Event::UserFound { pending, answer });
        self.after(now, sent, out);
    }
}

/// A payload that says of itself whether it is whole.
pub fn whole_payload(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => return Vec::new(),
        1..=8 => rng.index(200),
        _ => rng.index(1_200),
    };
    let mut payload = rng.bytes(len);
    payload.extend_from_slice(&fnv(&payload).to_be_bytes());
    payload
}

pub fn is_whole(payload: &[u8]) -> bool {
    match payload.split_last_chunk::<8>() {
        Some((data, sum)) => fnv(data).to_be_bytes() == *sum,
        None => payload.is_empty(),
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Relayed addresses that clients tell each other.
pub type Board = Rc<RefCell<Vec<PeerAddr>>>;

const BOARD_MAX: usize = 8;

/// A client that behaves, more or less: it allocates, talks, changes its mind.
pub struct ClientNode {
    pub client: Client,
    me: SocketAddr,
    rng: Rng,
    peers: Vec<PeerAddr>,
    board: Board,
    ready: Vec<(PeerAddr, Option<ChannelNumber>)>,
    next: Instant,
    /// The longest pause between two actions.
    pause: Duration,
    /// Nothing corrupts or forges packets in this world.
    clean: bool,
    pub gone: bool,
    pub allocations: u32,
    pub received: u32,
    pub icmp: u32,
    pub violation: Option<String>,
}

/// What a client is made of.
pub struct ClientPlan {
    pub client: Client,
    pub me: SocketAddr,
    pub peers: Vec<PeerAddr>,
    pub board: Board,
    pub pause: Duration,
    pub clean: bool,
}

impl ClientNode {
    pub fn new(plan: ClientPlan, rng: Rng) -> Self {
        let ClientPlan { client, me, peers, board, pause, clean } = plan;
        Self {
            client,
            me,
            rng,
            peers,
            board,
            ready: Vec::new(),
            next: Instant::ZERO,
            pause,
            clean,
            gone: false,
            allocations: 0,
            received: 0,
            icmp: 0,
            violation: None,
        }
    }

    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        let Body::Udp(datagram) = packet.body else { return };
        if packet.src != self.client.server().0 || packet.dst != self.me || self.gone {
            return;
        }
        match self.client.handle_datagram(now.instant, &datagram) {
            Incoming::Data { peer, payload, .. } => {
                self.received += 1;
                if self.clean && !is_whole(payload) {
                    self.violation = Some(format!("a client got a broken payload from {peer}"));
                }
            }
            Incoming::Icmp { .. } => self.icmp += 1,
            Incoming::Answer | Incoming::Ignored(_) => {}
        }
        self.flush(out);
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.client.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.client.handle_timeout(now.instant);
        }
        if self.next <= now.instant {
            self.next =
                now.instant + Duration::from_millis(1) + self.rng.duration_below(self.pause);
            self.act(now.instant, out);
        }
        self.flush(out);
    }

    fn next_wake(&self) -> Option<Instant> {
        let timeout = self.client.poll_timeout();
        (!self.gone).then(|| timeout.map_or(self.next, |timeout| timeout.min(self.next)))
    }

    /// Requests may be refused here for lack of room: then there will be another time.
    fn act(&mut self, now: Instant, out: &mut Outbox) {
        if self.client.allocation().is_none() {
            if self.rng.below(10) == 0 {
                let _ = self.client.binding(now);
            }
            let options = self.options();
            let _ = self.client.allocate(now, options);
            return;
        }
        let board = self.board.borrow();
        let peer = if !board.is_empty() && self.rng.below(6) == 0 {
            // Another client's relayed address: a packet that turns around in the server.
            board[self.rng.index(board.len())]
        } else {
            *self.rng.pick(&self.peers)
        };
        drop(board);
        match self.rng.below(40) {
            0 => {
                let _ = self.client.release(now);
            }
            1 => {
                let lifetime = self.rng.below(2_000) as u32;
                let half = *self.rng.pick(&[None, Some(IpFamily::V4), Some(IpFamily::V6)]);
                let _ = self.client.refresh(now, half, lifetime);
            }
            2..=5 => {
                let _ = self.client.permit(now, peer.ip());
            }
            6..=8 => {
                let _ = self.client.bind_channel(now, peer);
            }
            9 => self.client.forget_permission(now, peer.ip()),
            10 => self.talk(peer, None, out),
            _ => match self.ready.is_empty() {
                true => {
                    let _ = self.client.permit(now, peer.ip());
                }
                false => {
                    let (peer, channel) = *self.rng.pick(&self.ready);
                    self.talk(peer, channel, out);
                }
            },
        }
    }

    fn options(&mut self) -> AllocateOptions {
        let families = match self.rng.below(6) {
            0..=2 => Families::Unsaid,
            3 => Families::V4,
            4 => Families::V6,
            _ => Families::Both,
        };
        let even_port = match (self.rng.below(8), families) {
            (0, _) => Some(EvenPort::Even),
            (1, Families::Unsaid | Families::V4 | Families::V6) => {
                Some(EvenPort::EvenAndReserveNext)
            }
            _ => None,
        };
        let lifetime_secs = (self.rng.below(4) == 0).then(|| self.rng.within(0..3_000) as u32);
        AllocateOptions { families, even_port, lifetime_secs, ..AllocateOptions::default() }
    }

    fn talk(&mut self, peer: PeerAddr, channel: Option<ChannelNumber>, out: &mut Outbox) {
        let payload = whole_payload(&mut self.rng);
        let mut datagram = [0; 1_500];
        let len = match channel.filter(|_| self.rng.below(4) > 0) {
            Some(channel) => self.client.write_channel_data(&mut datagram, channel, &payload),
            None => {
                let dont_fragment = self.rng.below(8) == 0;
                self.client.write_send_indication(&mut datagram, peer, &payload, dont_fragment)
            }
        };
        let datagram = datagram[..len.expect("the buffer is large enough")].to_vec();
        out.send(Packet::udp(self.me, self.client.server().0, datagram));
    }

    fn flush(&mut self, out: &mut Outbox) {
        while let Some(request) = self.client.poll_transmit() {
            let request = request.to_vec();
            out.send(Packet::udp(self.me, self.client.server().0, request));
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Allocated(allocation) => {
                    self.allocations += 1;
                    let relayed = allocation.relayed.into_iter().flatten();
                    let mut board = self.board.borrow_mut();
                    board.extend(relayed.map(|relayed| PeerAddr(relayed.0)));
                    let surplus = board.len().saturating_sub(BOARD_MAX);
                    board.drain(..surplus);
                }
                ClientEvent::PermissionReady { peer } => {
                    let board = self.board.borrow();
                    let known = self.peers.iter().chain(board.iter());
                    let of_ip = known.filter(|known| known.ip() == peer);
                    self.ready.extend(of_ip.map(|known| (*known, None)));
                }
                ClientEvent::ChannelReady { channel, peer } => {
                    self.ready.push((peer, Some(channel)));
                }
                ClientEvent::Refused { request: RequestKind::Allocate, .. }
                | ClientEvent::Failed { request: RequestKind::Allocate, .. } => {
                    // Perhaps the 5-tuple is taken (RFC 8656 §7.4): another port may do.
                    self.me.set_port(self.me.port().wrapping_add(1).max(1024));
                }
                ClientEvent::AllocationLost(_) | ClientEvent::Released => self.ready.clear(),
                ClientEvent::PermissionLost { peer } => {
                    self.ready.retain(|(known, channel)| known.ip() != peer || channel.is_some());
                }
                ClientEvent::ChannelLost { channel, .. } => {
                    self.ready.retain(|(_, known)| *known != Some(channel));
                }
                ClientEvent::Bound { .. }
                | ClientEvent::Refreshed { .. }
                | ClientEvent::Redirected { .. }
                | ClientEvent::Refused { .. }
                | ClientEvent::Failed { .. } => {}
            }
        }
    }
}

/// A peer: echoes, sometimes from another port; its port 9 is closed.
pub struct PeerNode {
    pub me: SocketAddr,
    rng: Rng,
    clean: bool,
    /// Relayed addresses that were heard of.
    relays: Vec<SocketAddr>,
    pub next: Option<Instant>,
    pub received: u32,
    pub violation: Option<String>,
}

impl PeerNode {
    pub const CLOSED_PORT: u16 = 9;

    pub fn new(me: SocketAddr, rng: Rng, clean: bool) -> Self {
        let next = Some(Instant::ZERO + Duration::from_secs(7));
        Self { me, rng, clean, relays: Vec::new(), next, received: 0, violation: None }
    }

    fn receive(&mut self, packet: Packet, out: &mut Outbox) {
        if packet.dst.port() == Self::CLOSED_PORT {
            packet.port_unreachable().into_iter().for_each(|error| out.send(error));
            return;
        }
        let Body::Udp(payload) = packet.body else { return };
        self.received += 1;
        if self.clean && !is_whole(&payload) {
            self.violation = Some(format!("a peer got a broken payload from {}", packet.src));
        }
        if !self.relays.contains(&packet.src) && self.relays.len() < TAP_MAX {
            self.relays.push(packet.src);
        }
        let mut from = packet.dst;
        if self.rng.below(5) == 0 {
            from.set_port(from.port() + 1);
        }
        out.send(Packet::udp(from, packet.src, payload));
    }

    /// Speaks unasked, also to relays that are gone by now.
    fn wake(&mut self, now: Now, out: &mut Outbox) {
        self.next = Some(
            now.instant + Duration::from_secs(5) + self.rng.duration_below(Duration::from_secs(40)),
        );
        if !self.relays.is_empty() {
            let to = *self.rng.pick(&self.relays);
            out.send(Packet::udp(self.me, to, whole_payload(&mut self.rng)));
        }
    }
}

/// Somebody who means harm: invents, replays and mutates packets, and may forge their source.
pub struct HostileNode {
    pub me: Vec<SocketAddr>,
    rng: Rng,
    tap: SharedTap,
    forges: bool,
    pause: Duration,
    pub next: Option<Instant>,
}

impl HostileNode {
    pub fn new(me: Vec<SocketAddr>, rng: Rng, tap: SharedTap, forges: bool) -> Self {
        let pause = Duration::from_secs(3);
        Self { me, rng, tap, forges, pause, next: Some(Instant::ZERO) }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        self.next =
            Some(now.instant + Duration::from_millis(1) + self.rng.duration_below(self.pause));
        let tap = self.tap.borrow();
        let seen = (!tap.packets.is_empty())
            .then(|| tap.packets[self.rng.index(tap.packets.len())].clone());
        let me = *self.rng.pick(&self.me);
        let own_family = |to: &SocketAddr| to.is_ipv4() == me.is_ipv4();
        let listener = listeners().map(|listener| listener.0).into_iter().find(own_family);
        let Some(listener) = listener else { return };
        let len = self.rng.index(300);
        let packet = match (self.rng.below(6), seen) {
            (0, Some(seen)) if own_family(&seen.dst) => Packet { src: me, ..seen },
            (1, Some(seen)) if own_family(&seen.dst) => {
                Packet { src: me, ..mutated(&mut self.rng, seen) }
            }
            (2, Some(seen)) if self.forges => mutated(&mut self.rng, seen),
            (3, Some(seen)) if self.forges => seen,
            (4, _) if !tap.relays.is_empty() => {
                let to = tap.relays[self.rng.index(tap.relays.len())];
                if !own_family(&to) {
                    return;
                }
                Packet::udp(me, to, self.rng.bytes(len))
            }
            _ => {
                let mut junk = self.rng.bytes(len);
                if let Some(first) = junk.first_mut() {
                    // Let it get past the first look more often than one in four.
                    *first &= *self.rng.pick(&[0xFF, 0x7F, 0x4F, 0x03, 0x01]);
                }
                Packet::udp(me, listener, junk)
            }
        };
        out.send(packet);
    }
}

/// The packet with a few bytes changed, cut, or added.
fn mutated(rng: &mut Rng, mut packet: Packet) -> Packet {
    let Body::Udp(payload) = &mut packet.body else { return packet };
    for _ in 0..=rng.below(4) {
        match rng.below(8) {
            0 => payload.truncate(rng.index(payload.len() + 1)),
            1 => payload.extend(rng.bytes(4)),
            2 if payload.len() >= 4 => {
                let len = (payload.len() as u16).wrapping_sub(20).to_be_bytes();
                payload[2..4].copy_from_slice(&len);
            }
            _ => {
                let at = rng.index(payload.len());
                let bit = 1 << rng.below(8);
                if let Some(byte) = payload.get_mut(at) {
                    *byte ^= bit;
                }
            }
        }
    }
    packet
}
