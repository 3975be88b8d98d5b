//! Server with sockets, a user database and a registry, all made of values. Every decision of the
//! server is carried out, counted, and judged by the [`Ledger`].
//!
//! The worlds of `simulation` do not replace this driver. The ledger judges each response, drop and
//! relayed byte by the grants, and requires the verdicts, which a worker does not show. The model
//! and the fuzz target use this driver too.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stun_wire::{Class, Message};
use turn_proto::limits::{PENDING_LIFETIME, TIMER_TICK};
use turn_proto::{
    AllocationRecord, Answer, Command, DropReason, EndReason, Event, HEADER_MAX, IcmpReport,
    Notice, OpenRelayError, Policy, REPLY_MAX, RelayPorts, RelayPrefix, Route, RouteId, Server,
    ServerConfig, Verdict,
};
use turn_types::{
    AllocationId, ClientAddr, ClientPath, FiveTuple, Instant, IpFamily, IpMeta, Now, PeerAddr,
    PendingId, RelayId, ServerAddr, SocketId, Transport, WorkerId,
};

use super::ledger::{Check, Ledger, ToClient, ToPeer};
use super::setup::{LockedRegistry, listeners, shared_registry};

/// A datagram on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: Vec<u8>,
    pub dont_fragment: bool,
}

/// Number of packets by fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    pub handed_in: u64,
    pub replied: u64,
    pub to_peer: u64,
    pub to_client: u64,
    pub waited: u64,
    pub dropped: BTreeMap<DropReason, u64>,
}

impl Fates {
    fn total(&self) -> u64 {
        let dropped: u64 = self.dropped.values().sum();
        self.replied + self.to_peer + self.to_client + self.waited + dropped
    }
}

/// Closed relay sockets remembered.
const CLOSED_MAX: usize = 16;

type RequestKey = (FiveTuple, [u8; 12]);

pub struct Driver {
    pub server: Server,
    /// The transport of all clients.
    pub transport: Transport,
    pub policy: Arc<Policy>,
    pub registry: Arc<LockedRegistry>,
    pub ledger: Ledger,
    pub fates: Fates,
    /// Violations, sorted by time.
    pub violations: Vec<String>,
    /// Commands that wait for the harness to answer them.
    pub commands: Vec<Command>,
    /// Ports of all relay addresses that there are or were.
    ports: Vec<Arc<RelayPorts>>,
    prefixes: Vec<RelayPrefix>,
    /// Relay sockets to be opened.
    wanted: BTreeMap<RelayId, SocketAddr>,
    /// Relay sockets that are open.
    sockets: BTreeMap<RelayId, SocketAddr>,
    by_addr: BTreeMap<SocketAddr, RelayId>,
    /// Recently closed sockets, for packets that arrive too late.
    closed: VecDeque<(RelayId, SocketAddr)>,
    /// Routes as reported by the server.
    pub routes: BTreeMap<RouteId, Route>,
    /// Requests that wait for an answer, and since when.
    waiting: BTreeMap<RequestKey, (Instant, Vec<u8>)>,
    /// Request that each command belongs to.
    about: BTreeMap<PendingId, RequestKey>,
    /// Allocates whose relay sockets are being opened, and since when.
    opening: BTreeMap<PendingId, Instant>,
    created: u64,
    ended: BTreeMap<EndReason, u64>,
}

impl Driver {
    pub fn new(policy: Policy, seed: [u8; 32]) -> Self {
        let (policy, registry) = (Arc::new(policy), shared_registry());
        let server = Server::new(ServerConfig {
            worker: WorkerId(0),
            policy: Arc::clone(&policy),
            registry: Arc::clone(&registry) as _,
            seed,
            routes: true,
        });
        let mut driver = Self {
            ledger: Ledger::new(Arc::clone(&policy)),
            server,
            transport: Transport::Udp,
            policy,
            registry,
            fates: Fates::default(),
            violations: Vec::new(),
            commands: Vec::new(),
            ports: Vec::new(),
            prefixes: Vec::new(),
            wanted: BTreeMap::new(),
            sockets: BTreeMap::new(),
            by_addr: BTreeMap::new(),
            closed: VecDeque::new(),
            routes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            about: BTreeMap::new(),
            opening: BTreeMap::new(),
            created: 0,
            ended: BTreeMap::new(),
        };
        driver.note_ports();
        driver
    }

    fn note_ports(&mut self) {
        for relay in &self.policy.relay {
            if !self.ports.iter().any(|known| Arc::ptr_eq(known, &relay.ports)) {
                self.ports.push(Arc::clone(&relay.ports));
            }
        }
        for prefix in &self.policy.prefixes {
            if !self.prefixes.contains(prefix) {
                self.prefixes.push(prefix.clone());
            }
        }
    }

    /// The path of a datagram to one of the listeners.
    pub fn path(client: SocketAddr, listener: usize) -> ClientPath {
        let server = listeners()[listener];
        let five_tuple =
            FiveTuple { transport: Transport::Udp, client: ClientAddr(client), server };
        ClientPath { five_tuple, socket: SocketId(listener as u32) }
    }

    /// The path of a connection to one of the listeners.
    pub fn stream_path(client: SocketAddr, listener: usize) -> ClientPath {
        let mut path = Self::path(client, listener);
        path.five_tuple.transport = Transport::Tcp;
        path
    }

    /// A client's connection has ended.
    pub fn close(&mut self, now: Now, path: &ClientPath) {
        self.server.close(now, &path.five_tuple);
        self.waiting.retain(|(five_tuple, _), _| *five_tuple != path.five_tuple);
        self.drain(now.instant, None);
    }

    /// Returns true if a relay socket is open here.
    pub fn is_open(&self, at: SocketAddr) -> bool {
        self.by_addr.contains_key(&at)
    }

    /// Relay sockets that are open.
    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }

    // Input from the network.

    /// A datagram from a client.
    pub fn client(&mut self, now: Now, path: &ClientPath, packet: &[u8]) -> Option<Sent> {
        self.fates.handed_in += 1;
        let mut reply = [0; REPLY_MAX];
        let verdict = self.server.handle_client(now, path, IpMeta::DEFAULT, packet, &mut reply);
        let at = now.instant;
        let five_tuple = path.five_tuple;
        let sent = match verdict {
            Verdict::Reply { len, error } => {
                self.fates.replied += 1;
                let reply = &reply[..usize::from(len)];
                self.judge(|this| this.ledger.answered(at, &five_tuple, packet, reply));
                self.judge(|_| is_error(reply, error));
                Some(reply_to(path, reply))
            }
            Verdict::ReplyFrom { .. } => {
                self.violations.push("an answer from elsewhere, and nobody is to have one".into());
                None
            }
            Verdict::ToPeer { relay, peer, start, len, meta } => {
                self.fates.to_peer += 1;
                let payload = &packet[usize::from(start)..][..usize::from(len)];
                let relayed = self.sockets.get(&relay).copied();
                self.judge(|this| {
                    let relayed = relayed.ok_or("relayed from a closed socket")?;
                    let sent = ToPeer { packet, relayed, peer: peer.0, payload };
                    this.ledger.sent_to_peer(at, &five_tuple, &sent)
                });
                relayed.map(|from| Sent {
                    from,
                    to: peer.0,
                    payload: payload.to_vec(),
                    dont_fragment: meta.dont_fragment,
                })
            }
            Verdict::Wait | Verdict::Hold => {
                self.fates.waited += 1;
                self.judge(|this| this.wait(at, path, packet));
                self.drain(at, key_of(path, packet).ok());
                None
            }
            Verdict::Drop(reason) => {
                *self.fates.dropped.entry(reason).or_default() += 1;
                self.judge(|this| this.ledger.dropped_from_client(at, &five_tuple, packet, reason));
                if reason == DropReason::AlreadyPending {
                    self.judge(|this| this.is_waiting(path, packet));
                }
                None
            }
            Verdict::ToClient { .. } | Verdict::Queued => {
                self.violations.push(format!("{verdict:?} for a client's packet"));
                None
            }
        };
        self.drain(at, None);
        sent
    }

    /// A datagram to a relay socket.
    pub fn peer(
        &mut self,
        now: Now,
        relayed: SocketAddr,
        peer: SocketAddr,
        payload: &[u8],
    ) -> Option<Sent> {
        let relay = *self.by_addr.get(&relayed)?;
        self.fates.handed_in += 1;
        let mut header = [0; HEADER_MAX];
        let (meta, len, at) = (IpMeta::DEFAULT, payload.len(), now.instant);
        let verdict = self.server.handle_peer(now, relay, PeerAddr(peer), meta, len, &mut header);
        let sent = match verdict {
            Verdict::ToClient { socket, client, from, header: head, padding, .. } => {
                self.fates.to_client += 1;
                let server = listeners()[socket.0 as usize];
                let five_tuple = FiveTuple { transport: self.transport, client, server };
                let mut datagram = header[..usize::from(head)].to_vec();
                datagram.extend_from_slice(payload);
                datagram.resize(datagram.len() + usize::from(padding), 0);
                self.judge(|this| {
                    if from != server.ip() {
                        return Err(format!("sent from {from}"));
                    }
                    let sent = ToClient { relayed, peer, payload, datagram: &datagram };
                    this.ledger.sent_to_client(at, &five_tuple, &sent)
                });
                Some(Sent { from: server.0, to: client.0, payload: datagram, dont_fragment: false })
            }
            Verdict::Drop(reason) => {
                *self.fates.dropped.entry(reason).or_default() += 1;
                self.judge(|this| this.ledger.dropped_from_peer(at, relayed, peer, reason));
                None
            }
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::ToPeer { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued => {
                self.violations.push("a peer's packet was answered".into());
                None
            }
        };
        self.drain(at, None);
        sent
    }

    /// Delivers a datagram that was on its way through the kernel when its relay socket closed. No
    /// client may receive it, not even the new owner of the address.
    pub fn late(&mut self, now: Now, relayed: SocketAddr, peer: SocketAddr, payload: &[u8]) {
        let Some(&(relay, _)) = self.closed.iter().find(|(_, at)| *at == relayed) else { return };
        self.fates.handed_in += 1;
        let mut header = [0; HEADER_MAX];
        let (meta, len) = (IpMeta::DEFAULT, payload.len());
        let verdict = self.server.handle_peer(now, relay, PeerAddr(peer), meta, len, &mut header);
        if let Verdict::Drop(reason) = verdict {
            *self.fates.dropped.entry(reason).or_default() += 1;
        }
        if verdict != Verdict::Drop(DropReason::RelayClosed) {
            self.violations.push(format!("a packet to a closed relay met {verdict:?}"));
        }
        self.drain(now.instant, None);
    }

    /// An ICMP error about something that left a relay socket.
    pub fn icmp(
        &mut self,
        now: Now,
        relayed: SocketAddr,
        peer: SocketAddr,
        report: IcmpReport,
    ) -> Option<Sent> {
        let relay = *self.by_addr.get(&relayed)?;
        let mut reply = [0; REPLY_MAX];
        let answer = self.server.handle_icmp(now, relay, PeerAddr(peer), report, &mut reply).ok();
        self.drain(now.instant, None);
        let Answer { to, len, .. } = answer?;
        let datagram = &reply[..usize::from(len)];
        let five_tuple = to.five_tuple;
        self.judge(|this| this.ledger.reported(now.instant, &five_tuple, peer, datagram));
        Some(reply_to(&to, datagram))
    }

    /// Delivers the result of a command. An address that is in use by now cannot be opened.
    pub fn answer(&mut self, now: Now, event: Event) -> Option<Sent> {
        let (pending, event) = match event {
            Event::UserFound { pending, answer } => (pending, Event::UserFound { pending, answer }),
            Event::RelayOpened { pending, relay, result } => {
                let result = result.and_then(|()| self.open(relay));
                (pending, Event::RelayOpened { pending, relay, result })
            }
            Event::PeerConnected { pending, .. } | Event::Authorized { pending, .. } => {
                (pending, event)
            }
            Event::WorkerAnswered(_) | Event::FetchFailed(_) => {
                self.violations.push(format!("{event:?} where nobody may move"));
                return None;
            }
        };
        let mut reply = [0; REPLY_MAX];
        // A result without a command, or for another command, changes nothing.
        let user_found =
            matches!(event, Event::UserFound { .. }) && !self.opening.contains_key(&pending);
        let answer = self.server.handle_event(now, event, &mut reply);
        let key = if user_found || answer.is_some() { self.about.remove(&pending) } else { None };
        let sent = answer.map(|Answer { to, len, error, held: _ }| {
            self.opening.remove(&pending);
            let reply = &reply[..usize::from(len)];
            self.judge(|this| this.answered_late(now.instant, &to, reply, error));
            reply_to(&to, reply)
        });
        if let (Some(key), None) = (key, &sent) {
            // The request now waits for its relay sockets, or was dropped.
            match self.waiting.remove(&key) {
                Some((_, request)) if self.drain(now.instant, Some(key)) => {
                    self.waiting.insert(key, (now.instant, request));
                }
                Some(_) | None => {}
            }
        }
        self.drain(now.instant, None);
        sent
    }

    pub fn timeout(&mut self, now: Now) {
        self.server.handle_timeout(now);
        self.drain(now.instant, None);
        self.judge(|this| match this.server.poll_timeout() {
            Some(next) if next <= now.instant => Err("due again at once".into()),
            Some(_) | None => Ok(()),
        });
    }

    pub fn apply(&mut self, now: Now, policy: Policy) {
        self.policy = Arc::new(policy);
        self.ledger.apply(now.instant, Arc::clone(&self.policy));
        self.note_ports();
        self.server.apply(now, Arc::clone(&self.policy));
        self.drain(now.instant, None);
    }

    pub fn end_allocation(&mut self, now: Now, id: AllocationId) {
        assert!(self.server.end_allocation(now, id, EndReason::EndedByOperator));
        self.drain(now.instant, None);
    }

    /// The server shuts down.
    pub fn end_all(&mut self, now: Now) {
        self.server.end_all(now, EndReason::Shutdown);
        self.drain(now.instant, None);
    }

    // Consequences of a decision.

    fn open(&mut self, relay: RelayId) -> Result<(), OpenRelayError> {
        let at = self.wanted.remove(&relay).ok_or(OpenRelayError::Exhausted)?;
        if self.by_addr.contains_key(&at) {
            return Err(OpenRelayError::PortTaken);
        }
        self.sockets.insert(relay, at);
        self.by_addr.insert(at, relay);
        Ok(())
    }

    fn wait(&mut self, now: Instant, path: &ClientPath, packet: &[u8]) -> Check {
        let key = key_of(path, packet)?;
        // The request may have waited before, and been abandoned: any answer now arrives too late.
        self.about.retain(|_, other| *other != key);
        match self.waiting.insert(key, (now, packet.to_vec())) {
            Some((since, _)) if now < since + PENDING_LIFETIME => {
                Err("a request waits twice".into())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_waiting(&self, path: &ClientPath, packet: &[u8]) -> Check {
        let waits = self.waiting.contains_key(&key_of(path, packet)?);
        if waits { Ok(()) } else { Err("dropped as waiting, and does not wait".into()) }
    }

    fn answered_late(&mut self, now: Instant, to: &ClientPath, reply: &[u8], error: bool) -> Check {
        let key = key_of(to, reply)?;
        let waited = self.waiting.remove(&key);
        let (since, request) = waited.ok_or("answered to whom nobody waits")?;
        if now > since + PENDING_LIFETIME + TIMER_TICK {
            return Err("answered after the end of the wait".into());
        }
        is_error(reply, error)?;
        self.ledger.answered(now, &to.five_tuple, &request, reply)
    }

    /// Carries out commands, and reads notices. Commands with an answer belong to the request of
    /// this key. Returns true if there was such a command.
    fn drain(&mut self, now: Instant, key: Option<RequestKey>) -> bool {
        let before = self.commands.len();
        while let Some(command) = self.server.poll_command() {
            match command {
                Command::CloseRelay { relay } => {
                    // A socket that was abandoned before it opened does not exist yet.
                    if let Some(at) = self.sockets.remove(&relay) {
                        if let Some(left) = self.routes.values().find(|one| one.relayed.0 == at) {
                            self.violations.push(format!("{left:?} outlives its socket"));
                        }
                        self.by_addr.remove(&at);
                        self.closed.truncate(CLOSED_MAX - 1);
                        self.closed.push_front((relay, at));
                    }
                }
                Command::SetRoute(route) => {
                    if route.five_tuple.transport != self.transport {
                        self.violations.push(format!("{route:?} of another transport"));
                    }
                    let before = self.routes.insert(route.id, *route);
                    let socket = self.by_addr.get(&route.relayed.0);
                    if before == Some(*route) || socket != Some(&route.relay) {
                        self.violations.push(format!("{route:?} told twice, or without a socket"));
                    }
                }
                Command::RemoveRoute(id) => {
                    if self.routes.remove(&id).is_none() {
                        self.violations.push(format!("{id:?} was not set, or is gone"));
                    }
                }
                // Only with more allocations than a world has.
                Command::SuspendRoutes | Command::ResumeRoutes => {
                    self.violations.push(format!("{command:?} for a few routes"));
                }
                Command::OpenRelay { pending, relay, at } => {
                    self.opening.entry(pending).or_insert(now);
                    self.about.extend(key.map(|key| (pending, key)));
                    self.wanted.insert(relay, at.0);
                    self.commands.push(command);
                }
                Command::AskWorker { .. } | Command::Fetch { .. } | Command::HandOver(_) => {
                    self.violations.push(format!("{command:?} where nobody may move"));
                }
                Command::Authorize { .. } => {
                    self.violations.push(format!("{command:?}, and there is no authorizer"));
                }
                Command::UserOverdue { .. } => self.commands.push(command),
                Command::FindUser { pending, .. } => {
                    self.about.extend(key.map(|key| (pending, key)));
                    self.commands.push(command);
                }
                Command::Tcp(command) => {
                    self.violations.push(format!("{command:?}, and no TCP is relayed"));
                }
            }
        }
        while let Some(notice) = self.server.poll_notice() {
            match notice {
                Notice::AllocationCreated(_) => self.created += 1,
                Notice::AllocationEnded(record) => {
                    let reason = record.end.map(|(reason, _)| reason);
                    *self.ended.entry(reason.unwrap_or(EndReason::Expired)).or_default() += 1;
                    self.judge(|this| this.ended(now, &record));
                }
                Notice::AllocationMoved { .. }
                | Notice::AllocationRefreshed(_)
                | Notice::Refused(_)
                | Notice::BudgetSpent { .. } => {}
            }
        }
        self.commands.len() > before
    }

    fn ended(&mut self, now: Instant, record: &AllocationRecord) -> Check {
        let Some((reason, _)) = record.end else { return Err("ended without a reason".into()) };
        let granted = self.ledger.end(&record.five_tuple).ok_or("ended and never granted")?;
        let told = (record.traffic.to_peer_packets, record.traffic.to_peer_bytes);
        if told != (granted.to_peer.packets, granted.to_peer.bytes) {
            return Err(format!("told {told:?} to peers, relayed {:?}", granted.to_peer));
        }
        let told = (record.traffic.to_client_packets, record.traffic.to_client_bytes);
        if told != (granted.to_client.packets, granted.to_client.bytes) {
            return Err(format!("told {told:?} to clients, relayed {:?}", granted.to_client));
        }
        match reason {
            EndReason::Expired | EndReason::Deleted if granted.is_live(now) => {
                // A deletion is reported before its response is written.
                if reason == EndReason::Deleted { Ok(()) } else { Err("ended too early".into()) }
            }
            EndReason::Expired
            | EndReason::Deleted
            | EndReason::EndedByOperator
            | EndReason::Revoked
            | EndReason::Shutdown
            | EndReason::RelayAddressRemoved
            | EndReason::ListenerRemoved
            | EndReason::SystemExhausted
            | EndReason::ConnectionClosed => Ok(()),
        }
    }

    // Permanent invariants.

    /// Everything that must hold between two steps.
    pub fn audit(&mut self, now: Instant) -> Check {
        if let Some(first) = self.violations.first() {
            return Err(first.clone());
        }
        if self.fates.total() != self.fates.handed_in {
            return Err(format!("a packet had no fate, or two: {:?}", self.fates));
        }
        // The server has abandoned each request that no client waits for.
        let given_up = |since: &Instant| now >= *since + PENDING_LIFETIME + TIMER_TICK;
        self.waiting.retain(|_, (since, _)| !given_up(since));
        self.opening.retain(|_, since| !given_up(since));
        self.audit_deadlines(now)?;
        self.audit_counts(now)
    }

    fn audit_deadlines(&self, now: Instant) -> Check {
        for record in self.server.allocations() {
            if now >= record.expires + TIMER_TICK + TIMER_TICK {
                return Err(format!("{} outlives its end", record.id));
            }
            if self.ledger.live(now, &record.five_tuple).is_none() && now < record.expires {
                return Err(format!("{} is live and was never granted", record.id));
            }
        }
        Ok(())
    }

    fn audit_counts(&self, now: Instant) -> Check {
        let live = self.server.allocation_count();
        let ended: u64 = self.ended.values().sum();
        if self.created - ended != live as u64 {
            return Err(format!("{} made, {ended} ended, {live} live", self.created));
        }
        let opening = self.opening.len();
        let (taken, reserved) =
            self.registry.read(|registry| (registry.allocations(), registry.reservations()));
        let taken = taken as usize;
        if taken < live || taken > live + opening {
            return Err(format!("{taken} in the quotas, {live} live, {opening} opening"));
        }
        let ports = self.ports_in_use() as usize;
        let open = self.sockets.len();
        // While sockets are being opened: those not open yet, ports that turned out to be taken,
        // and the next higher ones.
        let most = open + reserved + 40 * opening;
        if ports < open + reserved || ports > most {
            return Err(format!(
                "{ports} ports, {open} sockets, {reserved} reserved, {opening} opening"
            ));
        }
        // Every relayed address granted has its socket, and no socket is open much longer.
        let granted = self.ledger.relayed(now, Duration::ZERO);
        let lingering = self.ledger.relayed(now, 2 * TIMER_TICK);
        if open < granted || open > lingering + 2 * opening {
            return Err(format!(
                "{open} sockets, {granted} to {lingering} wanted, {opening} opening"
            ));
        }
        Ok(())
    }

    fn ports_in_use(&self) -> u32 {
        let of_prefixes: u32 = self.prefixes.iter().map(RelayPrefix::used).sum();
        of_prefixes + self.ports.iter().map(|ports| ports.used()).sum::<u32>()
    }

    /// Invariants after the end of all clients.
    pub fn is_empty(&self) -> Check {
        let (taken, reserved) =
            self.registry.read(|registry| (registry.allocations(), registry.reservations()));
        let ports = self.ports_in_use();
        let (sockets, routes) = (self.sockets.len(), self.routes.len());
        let left = (self.server.allocation_count(), sockets, routes, taken, reserved, ports);
        if left != (0, 0, 0, 0, 0, 0) {
            return Err(format!("left over: {left:?}"));
        }
        match self.server.poll_timeout() {
            Some(next) => Err(format!("still waits for {next:?}")),
            None => Ok(()),
        }
    }

    /// Number of ended allocations by reason.
    pub const fn ended_by(&self) -> &BTreeMap<EndReason, u64> {
        &self.ended
    }

    /// Number of allocations made.
    pub const fn created(&self) -> u64 {
        self.created
    }

    fn judge(&mut self, check: impl FnOnce(&mut Self) -> Check) {
        if let Err(why) = check(self) {
            self.violations.push(why);
        }
    }
}

/// An ICMP report for the family of an address.
pub fn icmp_report(about: SocketAddr, kind: u8, code: u8, data: u32) -> IcmpReport {
    IcmpReport { family: IpFamily::of(about.ip()), kind, code, data }
}

fn reply_to(path: &ClientPath, reply: &[u8]) -> Sent {
    let ServerAddr(from) = path.five_tuple.server;
    let to = path.five_tuple.client.0;
    Sent { from, to, payload: reply.to_vec(), dont_fragment: false }
}

fn key_of(path: &ClientPath, message: &[u8]) -> Result<RequestKey, String> {
    let message = Message::parse(message).map_err(|error| error.to_string())?;
    Ok((path.five_tuple, message.transaction_id().0))
}

fn is_error(reply: &[u8], error: bool) -> Check {
    let class = Message::parse(reply).map_err(|error| error.to_string())?.class();
    let said = if error { Class::Error } else { Class::Success };
    if class == said { Ok(()) } else { Err(format!("said {said:?}, sent {class:?}")) }
}
