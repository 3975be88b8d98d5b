//! All stores of a server. Each method borrows only the stores that it needs.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use stun_wire::Message;
use turn_types::{ClientPath, FiveTuple, Instant, WorkerId};

use crate::io::{Command, EndReason};
use crate::method::allocate::Allocate;
use crate::method::connect::Connect;
use crate::method::create_permission::Permit;
use crate::mobility::reserved::ReservedPort;
use crate::mobility::{Moves, path};
use crate::policy::{Entry, Policy, RealmRules};
use crate::random::Random;
use crate::store::{
    Allocations, Budgets, ExpectedClients, Ids, MoveQueues, NewPeers, Outbox, Pending,
    RegistryHandle, SharedRegistry, Slot, Waiting,
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) ids: Ids,
    pub(super) random: Random,
    pub(super) registry: RegistryHandle,
    pub(super) allocations: Allocations,
    pub(super) pending: Pending,
    pub(super) outbox: Outbox,
    pub(super) expected: ExpectedClients,
    pub(super) queues: MoveQueues,
    pub(super) budgets: Budgets,
    pub(super) new_peers: NewPeers,
    /// Server names requested in clients' TLS and DTLS handshakes, stored where the policy chooses
    /// realms by name. At most one entry per connection.
    server_names: BTreeMap<FiveTuple, String>,
    /// True while new allocations are refused.
    pub(super) draining: bool,
    /// Time to repeat questions to workers that have not answered.
    repeat_at: Option<Instant>,
    /// Time of the next sweep of expired reservations; `None` without a reservation.
    sweep_at: Option<Instant>,
}

impl State {
    pub(super) fn new(
        worker: WorkerId,
        registry: Arc<dyn SharedRegistry>,
        seed: [u8; 32],
        has_routes: bool,
    ) -> Self {
        let mut random = Random::new(seed);
        let hasher = random.hasher();
        Self {
            ids: Ids::new(worker),
            registry: RegistryHandle::new(registry, hasher.clone()),
            allocations: Allocations::new(hasher, has_routes),
            pending: Pending::new(random.hasher()),
            outbox: Outbox::default(),
            expected: ExpectedClients::new(random.hasher()),
            queues: MoveQueues::new(random.hasher()),
            budgets: Budgets::new(&mut random),
            new_peers: NewPeers::new(&mut random),
            server_names: BTreeMap::new(),
            draining: false,
            repeat_at: None,
            sweep_at: None,
            random,
        }
    }

    /// Sets the sizes of bounded tables. With several realms, the realms compete for these tables.
    pub(super) fn set_limits(&mut self, policy: &Policy) {
        let compete = !policy.realms.is_empty();
        self.registry.set_limits(compete, &policy.quotas);
        self.allocations.set_realms_compete(compete);
        self.allocations.set_connections_max(policy.quotas.peer_connections);
        self.pending.set_realms_compete(compete);
        self.expected.set_realms_compete(compete);
    }

    pub(super) const fn allocate(&mut self) -> Allocate<'_> {
        Allocate {
            allocations: &mut self.allocations,
            pending: &mut self.pending,
            expected: &self.expected,
            registry: &self.registry,
            sweep_at: &mut self.sweep_at,
            outbox: &mut self.outbox,
            ids: &mut self.ids,
            random: &mut self.random,
        }
    }

    pub(super) const fn permit(&mut self) -> Permit<'_> {
        Permit {
            allocations: &mut self.allocations,
            new_peers: &mut self.new_peers,
            outbox: &mut self.outbox,
        }
    }

    pub(super) const fn connect(&mut self) -> Connect<'_> {
        Connect {
            allocations: &mut self.allocations,
            pending: &mut self.pending,
            new_peers: &mut self.new_peers,
            outbox: &mut self.outbox,
            random: &mut self.random,
            worker: self.ids.worker(),
        }
    }

    pub(super) const fn moves(&mut self) -> Moves<'_> {
        Moves {
            allocations: &mut self.allocations,
            pending: &mut self.pending,
            expected: &mut self.expected,
            queues: &mut self.queues,
            repeat_at: &mut self.repeat_at,
            registry: &self.registry,
            outbox: &mut self.outbox,
            ids: &mut self.ids,
        }
    }

    /// Stores the server name requested on a client's connection, where the policy chooses realms
    /// by name.
    pub(super) fn set_server_name(&mut self, policy: &Policy, five_tuple: FiveTuple, name: &str) {
        if policy.realms.have_server_names() {
            self.server_names.insert(five_tuple, name.to_ascii_lowercase());
        }
    }

    /// Returns the rules that apply to a request.
    pub(super) fn rules_for<'a>(
        &self,
        policy: &'a Policy,
        path: &ClientPath,
        message: &Message<'_>,
    ) -> RealmRules<'a> {
        let five_tuple = &path.five_tuple;
        let server_name = self.server_names.get(five_tuple).map(String::as_str);
        policy.of_request(&Entry { five_tuple, server_name, message })
    }

    /// Returns the allocation of a 5-tuple, unless it has expired.
    pub(super) fn live_slot(&mut self, now: Instant, five_tuple: &FiveTuple) -> Option<Slot> {
        self.allocations.live_slot(now, five_tuple, &mut self.outbox)
    }

    pub(super) fn end(&mut self, slot: Slot, now: Instant, reason: EndReason) {
        self.allocations.end(slot, now, reason, &mut self.outbox);
    }

    /// Completes the move of a client after a packet on the 5-tuple where the client is expected.
    pub(super) fn complete_move(&mut self, policy: &Policy, now: Instant, slot: Slot) {
        path::complete_move(policy, now, &mut self.allocations, slot, &mut self.outbox);
    }

    /// Reclaims all expired state, and does a part of a review.
    pub(super) fn handle_timeout(&mut self, policy: &Policy, now: Instant) {
        while let Some(slot) = self.allocations.pop_due(now) {
            if self.allocations.expire(slot, now, &mut self.outbox) {
                self.confirm_again(now, slot);
            }
        }
        while let Some(pending) = self.pending.take_overdue_lookup(now) {
            self.outbox.command(Command::UserOverdue { pending });
        }
        while let Some(waiting) = self.pending.take_expired(now) {
            self.abandon(waiting);
        }
        if self.expected.next_sweep().is_some_and(|at| at <= now) {
            self.expected.sweep(now);
        }
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.moves().repeat_moves(now);
        }
        self.moves().review_queues(now);
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep_at = self.registry.sweep(now);
        }
        if self.allocations.review_due().is_some() {
            self.allocations.continue_review(policy, now, &mut self.outbox);
        }
    }

    /// Returns the next time at which [`Self::handle_timeout`] has work.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let sweeps = [self.sweep_at, self.expected.next_sweep(), self.repeat_at];
        let Self { allocations, pending, .. } = self;
        let timers = [allocations.next_timer(), allocations.review_due(), pending.next_end()];
        timers.into_iter().chain(sweeps).flatten().min()
    }

    /// Reserves a port that another process had reserved, if the port is available.
    pub(super) fn reserve_again(&mut self, policy: &Policy, now: Instant, port: &ReservedPort) {
        if let Some(expires) = self.moves().reserve_again(policy, now, port) {
            self.sweep_at = Some(expires.earliest(self.sweep_at));
        }
    }

    /// Applies a new policy to all allocations.
    pub(super) fn apply(&mut self, policy: &Policy, now: Instant) {
        self.set_limits(policy);
        self.allocations.start_review(policy, now, &mut self.outbox);
    }

    /// Handles the end of a client's connection. The client's allocation and pending requests end,
    /// because the client can neither refresh nor receive a response. The RFC does not specify this
    /// case. A client that may move can continue from another 5-tuple.
    pub(super) fn close(&mut self, policy: &Policy, five_tuple: &FiveTuple, now: Instant) {
        self.server_names.remove(five_tuple);
        self.expected.remove(five_tuple);
        self.abandon_all_of(five_tuple, now);
        let Some(slot) = self.allocations.of_client(five_tuple) else { return };
        if self.allocations.get(slot).mobility.is_some() {
            let Self { allocations, outbox, .. } = self;
            path::lose(policy, now, allocations, slot, five_tuple, outbox);
        } else {
            self.end(slot, now, EndReason::ConnectionClosed);
        }
    }

    /// Abandons the pending requests of a client.
    pub(super) fn abandon_all_of(&mut self, five_tuple: &FiveTuple, now: Instant) {
        while let Some(waiting) = self.pending.take_of(five_tuple) {
            self.abandon(waiting);
        }
        self.moves().review_queue(five_tuple, now);
    }

    /// Ends all allocations, and abandons all pending requests.
    pub(super) fn end_all(&mut self, now: Instant, reason: EndReason) {
        while let Some(waiting) = self.pending.take_oldest() {
            self.abandon(waiting);
        }
        for slot in self.allocations.slots() {
            self.end(slot, now, reason);
        }
    }

    /// Abandons a pending request.
    fn abandon(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::User(_) | Waiting::Keys | Waiting::Worker(_) => {}
            Waiting::Authorizer(allocation)
            | Waiting::Confirmation(allocation, _)
            | Waiting::Relay(allocation) => {
                allocation.abandon(&mut self.outbox);
            }
            Waiting::Connect(connect) => {
                self.allocations.close_connection(connect.connection, &mut self.outbox);
            }
        }
    }
}
