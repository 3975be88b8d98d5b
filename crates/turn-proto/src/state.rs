//! What a server knows, apart from its policy: the handlers under `request/` and `relay.rs` work on
//! it, with the policy beside it, so that neither is copied or counted for a packet.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use turn_types::{FiveTuple, Instant, IpFamily, WorkerId};

use crate::allocation::index_of;
use crate::arrivals::Arrivals;
use crate::command::Command;
use crate::move_queue::MoveQueues;
use crate::new_peers::NewPeers;
use crate::notice::{EndReason, Notice};
use crate::outbox::Outbox;
use crate::peers::{judge, to_public};
use crate::pending::Pending;
use crate::policy::Policy;
use crate::random::Random;
use crate::registry::{self, SharedRegistry};
use crate::response_budget::{ResponseBudget, SpentBudgets, VerificationBudget};
use crate::table::{Slot, Table};

pub(crate) struct State {
    pub(crate) worker: WorkerId,
    pub(crate) registry: Arc<dyn SharedRegistry>,
    pub(crate) table: Table,
    pub(crate) pending: Pending,
    pub(crate) outbox: Outbox,
    /// Clients of other workers' allocations who are about to be here.
    pub(crate) arrivals: Arrivals,
    /// What they send before their allocations are here.
    pub(crate) move_queues: MoveQueues,
    /// When other workers are asked again that have not answered; `None` while none is to answer.
    pub(crate) moves_at: Option<Instant>,
    /// Responses to requests that prove no user.
    pub(crate) responses: ResponseBudget,
    pub(crate) verifications: VerificationBudget,
    pub(crate) spent: SpentBudgets,
    pub(crate) new_peers: NewPeers,
    /// No new allocations.
    pub(crate) draining: bool,
    /// Whether routes are told.
    pub(crate) routes: bool,
    /// How many allocations and relay sockets there have been: the source of their ids.
    pub(crate) allocations_made: u64,
    pub(crate) relays_made: u64,
    pub(crate) random: Random,
    /// When a reservation made here runs out.
    sweep_at: Option<Instant>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("worker", &self.worker)
            .field("allocations", &self.table.len())
            .finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(
        worker: WorkerId,
        registry: Arc<dyn SharedRegistry>,
        seed: [u8; 32],
        routes: bool,
    ) -> Self {
        let mut random = Random::new(seed);
        let (table, pending) = (random.hasher(), random.hasher());
        let (arrivals, queues) = (random.hasher(), random.hasher());
        Self {
            worker,
            registry,
            table: Table::new(table),
            pending: Pending::new(pending),
            outbox: Outbox::default(),
            arrivals: Arrivals::new(arrivals),
            move_queues: MoveQueues::new(queues),
            moves_at: None,
            responses: ResponseBudget::new(&mut random),
            verifications: VerificationBudget::new(&mut random),
            spent: SpentBudgets::default(),
            new_peers: NewPeers::new(&mut random),
            draining: false,
            routes,
            allocations_made: 0,
            relays_made: 0,
            random,
            sweep_at: None,
        }
    }

    /// The allocation of a 5-tuple, unless it has run out; one that has is ended on the way.
    pub(crate) fn live_slot(&mut self, now: Instant, five_tuple: &FiveTuple) -> Option<Slot> {
        let slot = self.table.of_client(five_tuple)?;
        // A half that has run out, too: what it had must not stand in the way of anything new.
        if self.table.get(slot).halves.iter().flatten().any(|half| half.expires <= now) {
            self.settle(slot, now);
        }
        self.table.of_client(five_tuple)
    }

    /// Ends an allocation and all that belongs to it: permissions, channels, relay sockets, ports,
    /// its place in the quota (RFC 8656 §6).
    pub(crate) fn end(&mut self, slot: Slot, now: Instant, reason: EndReason) {
        let mut allocation = self.table.remove(slot, &mut self.outbox);
        let record = allocation.record(Some((reason, now)));
        self.outbox.notice(Notice::AllocationEnded(Box::new(record)));
        for half in &mut allocation.halves {
            if let Some(half) = half.take() {
                self.outbox.close(half);
            }
        }
    }

    /// Reclaims whatever has run out by now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.table.pop_due(now) {
            self.settle(slot, now);
        }
        while let Some(pending) = self.pending.take_overdue_lookup(now) {
            self.outbox.command(Command::UserOverdue { pending });
        }
        while let Some(waiting) = self.pending.take_expired(now) {
            self.abandon(waiting);
        }
        if self.arrivals.next_sweep().is_some_and(|at| at <= now) {
            self.arrivals.sweep(now);
        }
        if self.moves_at.is_some_and(|at| at <= now) {
            self.repeat_moves(now);
        }
        self.review_queues(now);
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep_at = registry::sweep(&self.registry, now);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let sweeps = [self.sweep_at, self.arrivals.next_sweep(), self.moves_at];
        let timers = [self.table.next_timer(), self.pending.next_end()];
        timers.into_iter().chain(sweeps).flatten().min()
    }

    /// Has reservations looked at when this one runs out.
    pub(crate) fn sweep_reservations_at(&mut self, expires: Instant) {
        self.sweep_at = Some(self.sweep_at.map_or(expires, |at| at.min(expires)));
    }

    /// Ends what has run out in one allocation, perhaps all of it.
    fn settle(&mut self, slot: Slot, now: Instant) {
        if !self.table.get(slot).is_live(now) {
            self.end(slot, now, EndReason::Expired);
            return;
        }
        self.close_halves(slot, |_, half_expires| now < half_expires);
        self.table.reclaim(slot, now, &mut self.outbox);
        self.close_overdue(slot, now);
        self.table.arm(slot);
    }

    /// Closes the halves that `keep` does not keep, by local address and end.
    fn close_halves(&mut self, slot: Slot, keep: impl Fn(IpAddr, Instant) -> bool) {
        for family in IpFamily::ALL {
            let half = &self.table.get(slot).halves[index_of(family)];
            let closes = half.as_ref().is_some_and(|half| !keep(half.local.ip(), half.expires));
            if closes {
                self.close_half(slot, family);
            }
        }
    }

    /// Closes one half, with its permissions and channels.
    pub(crate) fn close_half(&mut self, slot: Slot, family: IpFamily) {
        if let Some(half) = self.table.remove_half(slot, family, &mut self.outbox) {
            self.outbox.close(half);
        }
    }

    /// A new policy for what is live: halves on addresses that are gone end, and so do permissions
    /// and channels towards peers that are forbidden now.
    pub(crate) fn apply(&mut self, policy: &Policy, now: Instant) {
        for slot in self.table.slots() {
            self.apply_to(policy, now, slot);
        }
    }

    /// The same for one allocation.
    pub(crate) fn apply_to(&mut self, policy: &Policy, now: Instant, slot: Slot) {
        let stays = |ip| policy.relay.iter().any(|relay| relay.local == ip);
        let halves = &self.table.get(slot).halves;
        if !halves.iter().flatten().any(|half| stays(half.local.ip())) {
            self.end(slot, now, EndReason::RelayAddressRemoved);
            return;
        }
        self.close_halves(slot, |ip, _| stays(ip));
        self.table.judge_peers(slot, &mut self.outbox, |ip| {
            let named = to_public(policy, SocketAddr::new(ip, 0).into()).ip();
            judge(policy, ip, named)
        });
        self.judge_connections(policy, slot);
        self.announce(policy, now, slot);
        self.table.arm(slot);
    }

    /// A client's connection has ended, and with it all that the client has or waits for: nobody can
    /// prolong it, or hear an answer. (A policy: the RFC does not say.) One who may move may do so from
    /// elsewhere.
    pub(crate) fn close(&mut self, policy: &Policy, five_tuple: &FiveTuple, now: Instant) {
        while let Some(waiting) = self.pending.take_of(five_tuple) {
            self.abandon(waiting);
        }
        self.arrivals.remove(five_tuple);
        self.review_queue(five_tuple, now);
        let Some(slot) = self.table.of_client(five_tuple) else { return };
        if self.table.get(slot).mobility.is_some() {
            self.lose_path(slot, five_tuple, policy, now);
        } else {
            self.end(slot, now, EndReason::ConnectionClosed);
        }
    }

    /// Ends everything, what waits included.
    pub(crate) fn end_all(&mut self, now: Instant, reason: EndReason) {
        while let Some(waiting) = self.pending.take_oldest() {
            self.abandon(waiting);
        }
        for slot in self.table.slots() {
            self.end(slot, now, reason);
        }
    }
}
