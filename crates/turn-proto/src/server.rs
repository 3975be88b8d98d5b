//! State machine of one worker's TURN and STUN server: all public inputs and outputs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use stun_wire::{
    Class, Cut, Message, Method, PacketKind, ParseError, channel_data, channel_data_rfc5766,
    classify, classify_rfc5766, next_message, next_message_rfc5766,
};
use turn_types::{
    AllocationId, ClientAddr, ClientPath, ConnectionId, Direction, FiveTuple, Instant, IpMeta, Now,
    PeerAddr, PendingId, Realm, RelayId, RelayedAddr, WorkerId,
};

mod handover;
mod limiting;
mod paths;
mod requests;
mod routes;
mod state;
mod waits;

use self::state::State;
use crate::auth;
use crate::io::{
    AllocationPeers, AllocationRecord, Answer, BindRequest, Command, DropReason, EndReason, Event,
    Fetch, HeaderBuffer, IcmpReport, Notice, PeerRefusal, Question, QueuedPacket, Refusal,
    ReplyBuffer, Request, Traffic, Verdict, WorkerAnswer,
};
use crate::limits::REQUEST_BYTES_MAX;
use crate::method::classic::Classic;
use crate::method::connect::Connected;
use crate::method::connection_attempt::{self, PeerArrival};
use crate::method::connection_bind;
use crate::method::open_relay::Opened;
use crate::mobility::worker_move::{Departure, Renamed};
use crate::policy::Policy;
use crate::relay::{self, FromClient, FromPeer, SendIndication, icmp};
use crate::store::carried::CarriedTraffic;
use crate::store::population::Population;
use crate::store::{SharedRegistry, Slot};
pub use waits::EndedWait;

/// Configuration of a new server.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a seed")]
pub struct ServerConfig {
    /// Worker served by the new server. The top bits of allocation ids contain the worker's number.
    pub worker: WorkerId,
    /// Rules of the server.
    pub policy: Arc<Policy>,
    /// State shared with the servers of other workers.
    pub registry: Arc<dyn SharedRegistry>,
    /// Seed of the server's random generator: 32 bytes from the operating system, different for
    /// each worker. Only tests may know the seed.
    pub seed: [u8; 32],
    /// True if the driver handles routes ([`Command::SetRoute`]). False: no routes are reported.
    pub routes: bool,
}

/// Result of [`Server::end_unaccepted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedPart {
    /// Number of ended allocations.
    pub ended: u64,
    /// Last examined allocation, if there may be more.
    pub next: Option<AllocationId>,
}

/// TURN and STUN server of one worker. The crate's documentation describes how to drive the server.
#[derive(Debug)]
pub struct Server {
    policy: Arc<Policy>,
    state: State,
}

impl Server {
    /// Creates a server without allocations.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let ServerConfig { worker, policy, registry, seed, routes } = config;
        let mut state = State::new(worker, registry, seed, routes);
        state.set_limits(&policy);
        Self { policy, state }
    }

    /// Handles a datagram from a client, or one message of a client's stream. A response is written
    /// to `reply`.
    pub fn handle_client(
        &mut self,
        now: Now,
        path: &ClientPath,
        meta: IpMeta,
        packet: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let (policy, revision) = (&*self.policy, self.state.allocations.revision());
        let from = FromClient { policy, revision, now: now.instant, path, meta, bytes: packet };
        let kind = if self.policy.rfc5766_clients { classify_rfc5766 } else { classify };
        let fate = match kind(packet) {
            PacketKind::ChannelData => handle_channel_data(&mut self.state, &from),
            PacketKind::Stun => match Message::parse(packet) {
                Ok(message) => handle_message(&mut self.state, now, &from, message, reply),
                Err(ParseError::BadCookie) => {
                    let State { budgets, outbox, .. } = &mut self.state;
                    Classic { policy: &self.policy, now, path, budgets, outbox }
                        .handle(packet, reply)
                }
                Err(ParseError::Fingerprint) => Err(DropReason::BadFingerprint),
                Err(_) => Err(DropReason::MalformedStun),
            },
            PacketKind::Dtls | PacketKind::Other => Err(DropReason::NotStun),
        };
        fate.unwrap_or_else(Verdict::Drop)
    }

    /// Stores the server name (SNI) of a client's TLS or DTLS handshake. The policy may choose the
    /// realm by this name. [`Server::close`] removes the name.
    pub fn set_server_name(&mut self, five_tuple: FiveTuple, name: &str) {
        self.state.set_server_name(&self.policy, five_tuple, name);
    }

    /// Handles a datagram of `len` bytes received by a relay socket. The header for the client is
    /// written to `header`.
    pub fn handle_peer(
        &mut self,
        now: Now,
        relay: RelayId,
        peer: PeerAddr,
        meta: IpMeta,
        len: usize,
        header: &mut HeaderBuffer,
    ) -> Verdict {
        let now = now.instant;
        let packet = FromPeer { policy: &self.policy, now, relay, peer, meta, len };
        let State { allocations, random, outbox, .. } = &mut self.state;
        let verdict = relay::to_client(allocations, &packet, random, header, outbox);
        verdict.unwrap_or_else(Verdict::Drop)
    }

    /// Handles an ICMP error about a datagram sent from `relay` to `peer`. `peer` is the
    /// destination inside the ICMP message, with port 0 if the system does not report the port. A
    /// report for the client is written to `reply`.
    ///
    /// # Errors
    /// The client gets no report, for the returned reason.
    pub fn handle_icmp(
        &mut self,
        now: Now,
        relay: RelayId,
        peer: PeerAddr,
        report: IcmpReport,
        reply: &mut ReplyBuffer,
    ) -> Result<Answer, DropReason> {
        let (now, meta) = (now.instant, IpMeta::DEFAULT);
        let packet = FromPeer { policy: &self.policy, now, relay, peer, meta, len: 0 };
        let State { allocations, random, .. } = &mut self.state;
        icmp::to_client(allocations, &packet, report, random, reply)
    }

    /// Handles the result of a command. If the response to the waiting request is ready, the
    /// response is written to `reply`.
    #[must_use = "the answer must be sent"]
    pub fn handle_event(
        &mut self,
        now: Now,
        event: Event,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let Self { policy, state } = self;
        let mut held = false;
        let (to, verdict) = match event {
            Event::UserFound { pending, answer } => {
                if let Some(five_tuple) = state.pending.take_keys(pending) {
                    state.keys_found(policy, now.instant, &five_tuple, &answer);
                    return None;
                }
                if let Some(deferred) = state.pending.take_user(pending) {
                    let verdict;
                    (verdict, held) = state.user_found(policy, now, &deferred, &answer, reply)?;
                    (deferred.path, verdict)
                } else {
                    let (responder, verdict) =
                        state.allocate().user_confirmed(policy, now, pending, &answer, reply)?;
                    (responder.path, verdict)
                }
            }
            Event::WorkerAnswered(answer) => {
                let (responder, verdict) =
                    state.moves().worker_answered(now.instant, *answer, reply)?;
                (responder.path, verdict)
            }
            Event::FetchFailed(fetch) => {
                state.moves().fetch_failed(&fetch.five_tuple, now.instant);
                return None;
            }
            Event::Authorized { pending, answer } => {
                let (responder, verdict) =
                    state.allocate().authorized(policy, now, pending, &answer, reply)?;
                (responder.path, verdict)
            }
            Event::RelayOpened { pending, relay, result } => {
                let opened = Opened { pending, relay, result };
                let (responder, verdict) =
                    state.allocate().relay_opened(policy, now.instant, opened, reply)?;
                (responder.path, verdict)
            }
            Event::PeerConnected { pending, connection, result } => {
                let connected = Connected { pending, connection, result };
                let (responder, verdict) =
                    state.connect().peer_connected(now.instant, connected, reply)?;
                (responder.path, verdict)
            }
        };
        verdict.into_answer(to, held)
    }

    /// Handles an accepted connection from a peer to a relay. The connection of a permitted peer
    /// gets a number. The ConnectionAttempt indication for the client is written to `reply` (RFC
    /// 6062 §5.3).
    ///
    /// # Errors
    /// The peer is refused, and the caller must close the connection immediately.
    pub fn handle_peer_connection(
        &mut self,
        now: Now,
        relay: RelayId,
        peer: PeerAddr,
        reply: &mut ReplyBuffer,
    ) -> Result<(ConnectionId, Answer), PeerRefusal> {
        let State { allocations, random, ids, .. } = &mut self.state;
        let (policy, now, worker) = (&*self.policy, now.instant, ids.worker());
        let arrival = PeerArrival { policy, now, worker, relay, peer };
        connection_attempt::handle(&arrival, allocations, random, reply)
    }

    /// Handles a ConnectionBind ([`TcpCommand::Bind`](crate::TcpCommand::Bind)), possibly from
    /// another worker's server. The response is written to `reply`. After a success response, all
    /// later bytes of the client's stream and all bytes from the peer are data. `None`: no response
    /// can be written.
    #[must_use = "the answer must be sent"]
    pub fn bind_connection(
        &mut self,
        now: Now,
        request: &BindRequest,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let State { allocations, outbox, .. } = &mut self.state;
        connection_bind::bind(now.instant, allocations, outbox, request, reply)
    }

    /// Refuses a ConnectionBind with 508. The caller cannot pass the request to the worker of the
    /// connection, because that worker is too busy.
    #[must_use = "the answer must be sent"]
    pub fn turn_bind_away(
        &mut self,
        request: &BindRequest,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let (outbox, reason) = (&mut self.state.outbox, Refusal::SystemExhausted);
        connection_bind::refuse(outbox, request, reason, reply)
    }

    /// Counts bytes relayed by a connection with a peer. If the allocation has exceeded its rate,
    /// returns the time until which this direction must pause.
    pub fn carried(
        &mut self,
        now: Now,
        connection: ConnectionId,
        direction: Direction,
        bytes: u64,
    ) -> Option<Instant> {
        let slot = self.state.allocations.of_connection(connection)?;
        self.state.allocations.get_mut(slot).carry(now.instant, direction, bytes)
    }

    /// Removes a connection with a peer that was closed by the peer or the client, or that failed.
    pub fn connection_ended(&mut self, connection: ConnectionId) {
        self.state.allocations.remove_connection(connection);
    }

    /// Reclaims expired state, and does a part of the review that [`Self::apply`] started. Must be
    /// called at [`Self::poll_timeout`]. May be called at any time.
    pub fn handle_timeout(&mut self, now: Now) {
        self.state.handle_timeout(&self.policy, now.instant);
    }

    /// Returns the time to call [`Self::handle_timeout`]; `None` while nothing expires. The time is
    /// in the past during a review. Deadlines are rounded up by at most
    /// [`TIMER_TICK`](crate::limits::TIMER_TICK). An expired allocation relays nothing, and is
    /// reclaimed up to this much later.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.state.next_timeout()
    }

    /// Returns the next command for the driver. The driver must poll until `None` after each call.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.state.outbox.poll_command()
    }

    /// Returns the next notice for logs, metrics and accounting.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.state.outbox.poll_notice()
    }

    /// Returns the number of notices lost since the start, because the driver did not poll in time.
    #[must_use]
    pub const fn notices_lost(&self) -> u64 {
        self.state.outbox.notices_lost()
    }

    /// Returns true if a relayed address belongs to a prefix. No interface has the addresses of
    /// prefixes.
    #[must_use]
    pub fn has_prefix_of(&self, at: RelayedAddr) -> bool {
        self.policy.prefix_of(at.ip()).is_some()
    }

    /// Applies a new policy. From this call on no packet passes to or from a peer that the policy
    /// denies. This call and later calls of [`Self::handle_timeout`], each with bounded work,
    /// remove denied permissions and channels. The same calls end allocations with a removed relay
    /// address or a revoked credential. Lifetimes apply from the next Refresh, quotas from the next
    /// Allocate.
    pub fn apply(&mut self, now: Now, policy: Arc<Policy>) {
        self.policy = policy;
        self.state.apply(&self.policy, now.instant);
    }

    /// Starts or stops draining. New allocations are refused (508), and live allocations continue.
    pub const fn drain(&mut self, draining: bool) {
        self.state.draining = draining;
    }

    /// Ends one allocation for the operator. Returns false if neither this server nor the registry
    /// of mobile allocations (RFC 8016) has the id. A mobile allocation on its way between two
    /// workers is ended at its arrival.
    pub fn end_for_operator(&mut self, now: Now, id: AllocationId) -> bool {
        self.end_allocation(now, id, EndReason::EndedByOperator)
            || self.state.registry.end_on_arrival(id)
    }

    /// Examines up to `limit` allocations with a higher id than `after`. Ends the allocations of
    /// `realm` (`None`: of all realms) if their secret or key is not accepted any more. An
    /// examination may derive a key, which takes some microseconds.
    pub fn end_unaccepted(
        &mut self,
        now: Now,
        realm: Option<&Realm>,
        after: Option<AllocationId>,
        limit: usize,
    ) -> EndedPart {
        let Self { policy, state } = self;
        let mut part = EndedPart::default();
        let mut unaccepted = Vec::new();
        for (looked, allocation) in state.allocations.iter_after(after).enumerate() {
            if looked >= limit {
                break;
            }
            part.next = (looked + 1 == limit).then_some(allocation.id);
            let grant = &allocation.grant;
            let is_meant = realm.is_none_or(|realm| *realm == grant.realm);
            if is_meant && !auth::is_still_accepted(policy.of(&grant.realm), grant) {
                unaccepted.push(allocation.id);
            }
        }
        for id in unaccepted {
            part.ended += u64::from(self.end_allocation(now, id, EndReason::Revoked));
        }
        part
    }

    /// Ends one allocation. Returns false if this server has no allocation with the id.
    pub fn end_allocation(&mut self, now: Now, id: AllocationId, reason: EndReason) -> bool {
        let slot = self.state.allocations.of_id(id);
        if let Some(slot) = slot {
            self.state.end(slot, now.instant, reason);
        }
        slot.is_some()
    }

    /// Adds the traffic of a fast path for an allocation since the last call. Returns false if this
    /// server has no allocation with the id. The bytes are also charged to the allocation's
    /// bandwidth. Traffic through the server gets only the remaining rate.
    pub fn credit(&mut self, id: AllocationId, carried: Traffic) -> bool {
        let slot = self.state.allocations.of_id(id);
        if let Some(slot) = slot {
            self.state.allocations.get_mut(slot).credit(&carried);
        }
        slot.is_some()
    }

    /// Finds the first message in the bytes of a client's stream (RFC 8489 §6.2.2). The caller
    /// passes each message to [`Self::handle_client`].
    #[must_use]
    pub fn next_message(&self, bytes: &[u8]) -> Cut {
        if self.policy.rfc5766_clients { next_message_rfc5766(bytes) } else { next_message(bytes) }
    }

    /// Returns the next queued packet whose client's allocation has arrived, or will not arrive.
    /// The caller passes the packet to [`Self::handle_client`]. The driver must poll until `None`
    /// after each call except calls with packets, before polling commands.
    pub fn poll_queued(&mut self) -> Option<QueuedPacket> {
        self.state.queues.poll()
    }

    /// Handles the end of a client's connection. Ends the client's allocation, unless the client
    /// may move to another 5-tuple (RFC 8016). Drops the client's pending requests. Must also be
    /// called before the first message of a new connection with the same 5-tuple.
    pub fn close(&mut self, now: Now, five_tuple: &FiveTuple) {
        self.state.close(&self.policy, five_tuple, now.instant);
    }

    /// Handles the Refresh by ticket of a client at another worker (RFC 8016). The caller sends the
    /// result to [`WorkerAnswer::asker`].
    pub fn answer_worker(&mut self, now: Now, question: Question) -> WorkerAnswer {
        let Self { policy, state } = self;
        state.moves().answer_worker(policy, now, question)
    }

    /// Withdraws the routes of an allocation before a move to another worker. Returns false if the
    /// allocation does not move, because it has ended or its client is expected at another 5-tuple.
    /// The caller must execute the commands before [`Self::depart`], to count the routes' last
    /// traffic for this allocation.
    pub fn withdraw(&mut self, now: Now, fetch: &Fetch) -> bool {
        self.state.moves().withdraw(now.instant, fetch)
    }

    /// Returns the relay sockets of an allocation, or none for an unknown id.
    pub fn relays_of(&self, id: AllocationId) -> impl Iterator<Item = RelayId> {
        let allocations = &self.state.allocations;
        let sockets = allocations.of_id(id).map(|slot| &allocations.get(slot).sockets);
        sockets.into_iter().flatten().flatten().map(|socket| socket.relay)
    }

    /// Returns the client of an allocation found by one relay, with all relays of the allocation.
    /// `None` for a relay without an allocation.
    pub fn client_of(
        &self,
        relay: RelayId,
    ) -> Option<(ClientAddr, impl Iterator<Item = RelayId> + use<>)> {
        let allocations = &self.state.allocations;
        let allocation = allocations.get(allocations.of_relay(relay)?);
        let relays = allocation.sockets.each_ref();
        let relays = relays.map(|socket| socket.as_ref().map(|socket| socket.relay));
        Some((allocation.path.five_tuple.client, relays.into_iter().flatten()))
    }

    /// Removes a [withdrawn](Self::withdraw) allocation and the relay sockets, for the move to
    /// another worker.
    pub fn depart(&mut self, fetch: &Fetch) -> Option<Departure> {
        self.state.moves().depart(fetch)
    }

    /// Restores an allocation after a failed move. The names of its relay sockets are unchanged.
    pub fn take_back(&mut self, now: Now, departure: Departure) {
        let Self { policy, state } = self;
        state.moves().take_back(policy, now.instant, departure);
    }

    /// Adds an allocation from another worker, and renames the relay sockets. The caller must use
    /// the new names for packets of these sockets.
    #[must_use = "the relay sockets have other names"]
    pub fn arrive(&mut self, now: Now, departure: Departure) -> [Option<Renamed>; 2] {
        let Self { policy, state } = self;
        state.moves().arrive(policy, now.instant, departure)
    }

    /// Ends all allocations, and drops all pending requests.
    pub fn end_all(&mut self, now: Now, reason: EndReason) {
        self.state.end_all(now.instant, reason);
    }

    /// Returns all allocations, sorted by id.
    pub fn allocations(&self) -> impl Iterator<Item = AllocationRecord> {
        self.state.allocations.iter().map(|allocation| allocation.record(None))
    }

    /// Returns the clients of all allocations, sorted by id.
    pub fn clients(&self) -> impl Iterator<Item = (AllocationId, FiveTuple)> {
        self.state.allocations.iter().map(|allocation| (allocation.id, allocation.path.five_tuple))
    }

    /// Returns the allocations with a higher id than `after`, sorted by id.
    pub fn allocations_after(
        &self,
        after: Option<AllocationId>,
    ) -> impl Iterator<Item = AllocationRecord> {
        self.state.allocations.iter_after(after).map(|allocation| allocation.record(None))
    }

    /// Returns an allocation and the allocation's peers by id.
    #[must_use]
    pub fn allocation(&self, id: AllocationId) -> Option<(AllocationRecord, AllocationPeers)> {
        let allocations = &self.state.allocations;
        let allocation = allocations.get(allocations.of_id(id)?);
        Some((allocation.record(None), allocation.peers()))
    }

    /// Returns the number of allocations.
    #[must_use]
    pub fn allocation_count(&self) -> usize {
        self.state.allocations.len()
    }

    /// Returns the numbers of allocations by kind.
    #[must_use]
    pub const fn population(&self) -> Population {
        self.state.allocations.population()
    }

    /// Returns the traffic relayed so far. Visits all allocations.
    #[must_use]
    pub fn carried_traffic(&self) -> CarriedTraffic {
        self.state.allocations.carried()
    }

    /// Adds the late-reported fast-path traffic of an ended allocation to
    /// [`Self::carried_traffic`].
    pub fn carried_late(&mut self, client: &FiveTuple, traffic: &Traffic) {
        self.state.allocations.carried_late(client, traffic);
    }

    /// Returns the time at which a pending request arrived that waits for a user or for relay
    /// sockets. For the second look-up of a user this is the start of that look-up.
    #[must_use]
    pub fn waits_since(&self, pending: PendingId) -> Option<Instant> {
        self.state.pending.waits_since(pending)
    }
}

/// Handles ChannelData for the allocation of the client's 5-tuple.
fn handle_channel_data(state: &mut State, from: &FromClient<'_>) -> Result<Verdict, DropReason> {
    let read = if from.policy.rfc5766_clients { channel_data_rfc5766 } else { channel_data };
    let message = read(from.bytes).map_err(|_| DropReason::MalformedChannelData)?;
    match slot_of_client(state, from) {
        Some(slot) => {
            let State { allocations, outbox, .. } = state;
            relay::channel_data(allocations.get_mut(slot), from, &message, outbox)
        }
        None => queue_data(state, from),
    }
}

/// Handles a Send indication for the allocation of the client's 5-tuple.
fn handle_send(
    state: &mut State,
    from: &FromClient<'_>,
    message: &Message<'_>,
) -> Result<Verdict, DropReason> {
    let indication = SendIndication::read(from.policy, message)?;
    match slot_of_client(state, from) {
        Some(slot) => relay::send(state.allocations.get_mut(slot), from, &indication),
        None => queue_data(state, from),
    }
}

/// Returns the allocation of a packet's client. A packet on the expected 5-tuple completes a move
/// (RFC 8016).
fn slot_of_client(state: &mut State, from: &FromClient<'_>) -> Option<Slot> {
    let five_tuple = &from.path.five_tuple;
    let slot = state.allocations.of_client(five_tuple)?;
    if state.allocations.get(slot).expects(five_tuple) {
        state.complete_move(from.policy, from.now, slot);
    }
    Some(slot)
}

/// Queues data on a 5-tuple with an allocation moving from another worker.
fn queue_data(state: &mut State, from: &FromClient<'_>) -> Result<Verdict, DropReason> {
    state.moves().queue_data(from.now, from.path, from.meta, from.bytes)
}

/// Handles a well-formed message by class (RFC 8489 §6.3).
fn handle_message(
    state: &mut State,
    now: Now,
    from: &FromClient<'_>,
    message: Message<'_>,
    reply: &mut ReplyBuffer,
) -> Result<Verdict, DropReason> {
    match message.class() {
        Class::Request if message.bytes().len() > REQUEST_BYTES_MAX => {
            Err(DropReason::MalformedStun)
        }
        Class::Request => {
            let arrived = now.instant;
            let &FromClient { policy, path, .. } = from;
            let rules = state.rules_for(policy, path, &message);
            let request = Request { policy, rules, now, arrived, path, message };
            Ok(state.handle_request(&request, reply))
        }
        Class::Indication if message.method() == Method::SEND => handle_send(state, from, &message),
        Class::Indication if message.method() == Method::BINDING => {
            Err(DropReason::BindingIndication)
        }
        Class::Indication => Err(DropReason::UnexpectedMethod),
        Class::Success | Class::Error => Err(DropReason::UnexpectedResponse),
    }
}
