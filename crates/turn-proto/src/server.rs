//! The one public state machine.

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
    /// The worker that it serves; in the top bits of its allocations' ids.
    pub worker: WorkerId,
    /// Its rules.
    pub policy: Arc<Policy>,
    /// State shared with the servers of other workers.
    pub registry: Arc<dyn SharedRegistry>,
    /// Source of all its randomness: 32 bytes from the operating system, another seed for each
    /// worker. Only tests may know it.
    pub seed: [u8; 32],
    /// The driver handles routes ([`Command::SetRoute`]); false reports none.
    pub routes: bool,
}

/// Result of [`Server::end_unaccepted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedPart {
    /// Allocations that were ended.
    pub ended: u64,
    /// The last one that was looked at, if there may be more.
    pub next: Option<AllocationId>,
}

/// The TURN and STUN server of one worker. See the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Server {
    policy: Arc<Policy>,
    state: State,
}

impl Server {
    /// A server without allocations.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let ServerConfig { worker, policy, registry, seed, routes } = config;
        let mut state = State::new(worker, registry, seed, routes);
        state.set_limits(&policy);
        Self { policy, state }
    }

    /// Takes a datagram from a client, or one message of a client's stream. An answer is written to
    /// `reply`.
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

    /// Tells the name that a client asked for in its handshake of TLS or DTLS (SNI): it may choose
    /// a realm. [`Server::close`] forgets it.
    pub fn set_server_name(&mut self, five_tuple: FiveTuple, name: &str) {
        self.state.set_server_name(&self.policy, five_tuple, name);
    }

    /// Takes a datagram of `len` bytes that came to a relay socket. Its header is written to
    /// `header`.
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

    /// Takes an ICMP error about a datagram that left `relay` for `peer`: the destination inside
    /// the ICMP message, with port 0 if the system does not tell it. A report for the client is
    /// written to `reply`.
    ///
    /// # Errors
    /// Why the client is told nothing.
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

    /// Takes the answer to a command. The answer to the request that waited for it, if it is ready,
    /// is written to `reply`.
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

    /// A peer has connected to a relay, and its connection was accepted. A permitted one gets a
    /// number, and the client is to be told by an indication, which is written to `reply` (RFC 6062
    /// §5.3).
    ///
    /// # Errors
    /// Why the connection is to be closed at once.
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

    /// Takes a ConnectionBind ([`TcpCommand::Bind`](crate::TcpCommand::Bind)), perhaps from another
    /// worker's server. If its answer, written to `reply`, is no error, all that follows it on the
    /// stream and all that the peer has sent is data. `None`: no answer can be made.
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

    /// Refuses a ConnectionBind that cannot be taken to the worker of its connection: it is too
    /// busy.
    #[must_use = "the answer must be sent"]
    pub fn turn_bind_away(
        &mut self,
        request: &BindRequest,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let (outbox, reason) = (&mut self.state.outbox, Refusal::SystemExhausted);
        connection_bind::refuse(outbox, request, reason, reply)
    }

    /// Bytes have gone through a connection. If its allocation has had more than its rate, that
    /// direction is to rest until the moment that is returned.
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

    /// A connection with a peer has ended by itself: its peer, or its client, has closed it, or it
    /// broke.
    pub fn connection_ended(&mut self, connection: ConnectionId) {
        self.state.allocations.remove_connection(connection);
    }

    /// Reclaims expired state, and does a part of the review that [`Self::apply`] started. To be
    /// called at [`Self::poll_timeout`], or at any time.
    pub fn handle_timeout(&mut self, now: Now) {
        self.state.handle_timeout(&self.policy, now.instant);
    }

    /// The time to call [`Self::handle_timeout`]; `None` while nothing expires. It is in the past
    /// during a review. Deadlines are rounded up by at most
    /// [`TIMER_TICK`](crate::limits::TIMER_TICK): an expired allocation relays nothing any more,
    /// and is reclaimed this much later.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.state.next_timeout()
    }

    /// The next thing to be done outside. To be polled empty after each call.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.state.outbox.poll_command()
    }

    /// The next thing to tell.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.state.outbox.poll_notice()
    }

    /// Notices that were not polled in time and are lost, since the beginning.
    #[must_use]
    pub const fn notices_lost(&self) -> u64 {
        self.state.outbox.notices_lost()
    }

    /// Returns true if a relayed address is one of a prefix, which no interface has.
    #[must_use]
    pub fn has_prefix_of(&self, at: RelayedAddr) -> bool {
        self.policy.prefix_of(at.ip()).is_some()
    }

    /// Applies a new policy. From now on no packet passes to or from a peer that the policy
    /// denies. Denied permissions and channels end in this call and in later calls of
    /// [`Self::handle_timeout`], each of bounded work. So do allocations with a relay address that
    /// was removed or a revoked credential. Lifetimes count from the next Refresh, quotas from the
    /// next Allocate.
    pub fn apply(&mut self, now: Now, policy: Arc<Policy>) {
        self.policy = policy;
        self.state.apply(&self.policy, now.instant);
    }

    /// Starts or stops draining: new allocations are refused (508), live ones go on until they end.
    pub const fn drain(&mut self, draining: bool) {
        self.state.draining = draining;
    }

    /// Ends one allocation for the operator, at any worker; false if there is none of this id. One
    /// that is between two workers ends when it arrives (RFC 8016).
    pub fn end_for_operator(&mut self, now: Now, id: AllocationId) -> bool {
        self.end_allocation(now, id, EndReason::EndedByOperator)
            || self.state.registry.end_on_arrival(id)
    }

    /// Looks at up to `limit` allocations with a higher id than `after`, and ends those of a realm
    /// (of all for `None`) whose secret or key counts no longer. A key is derived for each, so that
    /// a call takes some microseconds for each.
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

    /// Ends one allocation; false if there is none of this id here.
    pub fn end_allocation(&mut self, now: Now, id: AllocationId, reason: EndReason) -> bool {
        let slot = self.state.allocations.of_id(id);
        if let Some(slot) = slot {
            self.state.end(slot, now.instant, reason);
        }
        slot.is_some()
    }

    /// Adds the traffic of a fast path for an allocation since the last call; false if there is
    /// none of this id. The bytes are drawn from the allocation's bandwidth as well: only the rest
    /// of its rate is left for traffic through here.
    pub fn credit(&mut self, id: AllocationId, carried: Traffic) -> bool {
        let slot = self.state.allocations.of_id(id);
        if let Some(slot) = slot {
            self.state.allocations.get_mut(slot).credit(&carried);
        }
        slot.is_some()
    }

    /// Cuts the first message from the bytes of a client's stream (RFC 8489 §6.2.2). Each message
    /// goes to [`Self::handle_client`].
    #[must_use]
    pub fn next_message(&self, bytes: &[u8]) -> Cut {
        if self.policy.rfc5766_clients { next_message_rfc5766(bytes) } else { next_message(bytes) }
    }

    /// The next packet that waited for its client's allocation and is to be handled now, by
    /// [`Self::handle_client`]. To be polled empty, before the commands, after each call except
    /// with packets.
    pub fn poll_queued(&mut self) -> Option<QueuedPacket> {
        self.state.queues.poll()
    }

    /// A client's connection has ended: its allocation ends, unless the client may move and come
    /// back by another 5-tuple, and its pending requests are forgotten. To be called, too, before
    /// the first message of a new connection of the same 5-tuple.
    pub fn close(&mut self, now: Now, five_tuple: &FiveTuple) {
        self.state.close(&self.policy, five_tuple, now.instant);
    }

    /// Handles the Refresh by ticket of a client at another worker (RFC 8016). The answer goes
    /// to [`WorkerAnswer::asker`].
    pub fn answer_worker(&mut self, now: Now, question: Question) -> WorkerAnswer {
        let Self { policy, state } = self;
        state.moves().answer_worker(policy, now, question)
    }

    /// Prepares an allocation to leave: withdraws its routes. False if it does not leave, as it has
    /// ended or its client is expected elsewhere. Commands are to be carried out before it
    /// [departs](Self::depart), so that the traffic of its routes is still counted for it.
    pub fn withdraw(&mut self, now: Now, fetch: &Fetch) -> bool {
        self.state.moves().withdraw(now.instant, fetch)
    }

    /// The relay sockets of an allocation; none of one that is gone.
    pub fn relays_of(&self, id: AllocationId) -> impl Iterator<Item = RelayId> {
        let allocations = &self.state.allocations;
        let sockets = allocations.of_id(id).map(|slot| &allocations.get(slot).sockets);
        sockets.into_iter().flatten().flatten().map(|socket| socket.relay)
    }

    /// The client of an allocation by one of its relays, and all relays; `None` for a relay without
    /// an allocation.
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

    /// Lets an allocation leave that was [withdrawn](Self::withdraw), with its relay sockets.
    pub fn depart(&mut self, fetch: &Fetch) -> Option<Departure> {
        self.state.moves().depart(fetch)
    }

    /// Takes an allocation back that could not leave; its relay sockets are called as before.
    pub fn take_back(&mut self, now: Now, departure: Departure) {
        let Self { policy, state } = self;
        state.moves().take_back(policy, now.instant, departure);
    }

    /// Takes an allocation that another worker had, and renames its relay sockets. Packets of
    /// theirs are to be handed in by the new names.
    #[must_use = "the relay sockets have other names"]
    pub fn arrive(&mut self, now: Now, departure: Departure) -> [Option<Renamed>; 2] {
        let Self { policy, state } = self;
        state.moves().arrive(policy, now.instant, departure)
    }

    /// Ends all allocations; requests that wait are forgotten.
    pub fn end_all(&mut self, now: Now, reason: EndReason) {
        self.state.end_all(now.instant, reason);
    }

    /// All allocations, in the order of their ids.
    pub fn allocations(&self) -> impl Iterator<Item = AllocationRecord> {
        self.state.allocations.iter().map(|allocation| allocation.record(None))
    }

    /// The clients of all allocations, in the order of their ids.
    pub fn clients(&self) -> impl Iterator<Item = (AllocationId, FiveTuple)> {
        self.state.allocations.iter().map(|allocation| (allocation.id, allocation.path.five_tuple))
    }

    /// Allocations with a higher id than `after`, in the order of their ids.
    pub fn allocations_after(
        &self,
        after: Option<AllocationId>,
    ) -> impl Iterator<Item = AllocationRecord> {
        self.state.allocations.iter_after(after).map(|allocation| allocation.record(None))
    }

    /// An allocation and its peers, by its id.
    #[must_use]
    pub fn allocation(&self, id: AllocationId) -> Option<(AllocationRecord, AllocationPeers)> {
        let allocations = &self.state.allocations;
        let allocation = allocations.get(allocations.of_id(id)?);
        Some((allocation.record(None), allocation.peers()))
    }

    /// The number of allocations.
    #[must_use]
    pub fn allocation_count(&self) -> usize {
        self.state.allocations.len()
    }

    /// The numbers of allocations by kind.
    #[must_use]
    pub const fn population(&self) -> Population {
        self.state.allocations.population()
    }

    /// Traffic relayed so far. Visits all allocations.
    #[must_use]
    pub fn carried_traffic(&self) -> CarriedTraffic {
        self.state.allocations.carried()
    }

    /// Adds the traffic of a fast path for an allocation that is gone to [`Self::carried_traffic`].
    pub fn carried_late(&mut self, client: &FiveTuple, traffic: &Traffic) {
        self.state.allocations.carried_late(client, traffic);
    }

    /// The arrival of the request that waits under this id for a user or for relay sockets; the
    /// start of its user's second look-up.
    #[must_use]
    pub fn waits_since(&self, pending: PendingId) -> Option<Instant> {
        self.state.pending.waits_since(pending)
    }
}

/// ChannelData, for the allocation of its 5-tuple.
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

/// A Send indication, for the allocation of its 5-tuple.
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

/// The allocation of the client of a packet. The packet completes a move (RFC 8016).
fn slot_of_client(state: &mut State, from: &FromClient<'_>) -> Option<Slot> {
    let five_tuple = &from.path.five_tuple;
    let slot = state.allocations.of_client(five_tuple)?;
    if state.allocations.get(slot).expects(five_tuple) {
        state.complete_move(from.policy, from.now, slot);
    }
    Some(slot)
}

/// Queues data on a 5-tuple without an allocation, if one is on its way.
fn queue_data(state: &mut State, from: &FromClient<'_>) -> Result<Verdict, DropReason> {
    state.moves().queue_data(from.now, from.path, from.meta, from.bytes)
}

/// A well-formed message, by its class (RFC 8489 §6.3).
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
