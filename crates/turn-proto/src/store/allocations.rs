//! Allocations of a worker, with the indexes to find an allocation.
//!
//! Packets from clients are matched by 5-tuple. Packets from peers are matched by relay socket
//! *and* peer, so several allocations could share a relay socket. The index by relay socket matches
//! connections of peers (RFC 6062), and distinguishes a closed relay socket from a missing
//! permission. Operators name an allocation by id.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Bound;

use ahash::RandomState;
use fair_share::{LOGGED_IN, Share, Slots};
use hashbrown::HashMap;
use turn_types::{
    AllocationId, ClientPath, ConnectionId, FiveTuple, Instant, IpFamily, PeerAddr, RelayId,
    WorkerId,
};

use super::allocation::{Allocation, RelaySocket};
use super::carried::CarriedTraffic;
use super::changes::Changes;
use super::channel::Channel;
use super::connection::{PeerConnection, Phase};
use super::mobility::Next;
use super::outbox::Outbox;
use super::permission::Permission;
use super::population::Population;
use super::review::{PolicyRevision, Review};
use super::snapshot::Progress;
use super::timers::Timers;
use crate::io::{Refusal, TcpCommand, Traffic};
use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_PER_ALLOCATION_MAX};
use crate::policy::peers::OwnPorts;
use crate::random::Random;

/// Index of an allocation. A slot is reused after the removal of the allocation.
pub(crate) type Slot = u32;

/// Lookup key of a datagram from a peer: the worker's id of the relayed address and port, and the
/// IP address of the peer. The peer's port is not part of the key, because a permission applies to
/// all ports of an address (RFC 8656 §9). Each relayed address on a shared socket has a separate
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PeerKey {
    relay: RelayId,
    ip: IpAddr,
}

#[derive(Debug)]
pub(crate) struct Allocations {
    slots: Vec<Option<Box<Allocation>>>,
    free: Vec<Slot>,
    by_client: HashMap<FiveTuple, Slot, RandomState>,
    by_peer: HashMap<PeerKey, Slot, RandomState>,
    by_relay: HashMap<RelayId, Slot, RandomState>,
    pub(super) by_id: BTreeMap<AllocationId, Slot>,
    pub(super) by_connection: HashMap<ConnectionId, (Slot, Share), RandomState>,
    /// Shares of the worker's connections with peers.
    connection_slots: Slots,
    /// Latest results of the lookups. Packets of a 5-tuple or peer tend to arrive in runs.
    last_client: Option<(FiveTuple, Slot)>,
    last_peer: Option<(PeerKey, Slot)>,
    population: Population,
    /// Traffic of removed allocations, minus the traffic of live allocations from before the
    /// arrival at this worker.
    carried: CarriedTraffic,
    /// Timers, at most one per slot, for the next deadline of the allocation.
    timers: Timers,
    /// Allocations to copy to another process.
    pub(crate) changes: Changes,
    pub(super) review: Review,
    /// True if the driver supports routes.
    has_routes: bool,
}

impl Allocations {
    pub(crate) fn new(hasher: RandomState, has_routes: bool) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_client: HashMap::with_hasher(hasher.clone()),
            by_peer: HashMap::with_hasher(hasher.clone()),
            by_relay: HashMap::with_hasher(hasher.clone()),
            by_id: BTreeMap::new(),
            by_connection: HashMap::with_hasher(hasher.clone()),
            connection_slots: Slots::new(&LOGGED_IN, CONNECTIONS_MAX, hasher.clone()),
            last_client: None,
            last_peer: None,
            population: Population::default(),
            carried: CarriedTraffic::default(),
            timers: Timers::default(),
            changes: Changes::new(hasher),
            review: Review::default(),
            has_routes,
        }
    }

    /// Returns true if the driver supports routes.
    pub(crate) const fn has_routes(&self) -> bool {
        self.has_routes
    }

    /// Returns the revision of the current policy.
    pub(crate) const fn revision(&self) -> PolicyRevision {
        self.review.revision
    }

    /// Returns the number of allocations.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the number of allocations by kind.
    pub(crate) const fn population(&self) -> Population {
        self.population
    }

    /// Returns the traffic relayed so far. The costs are linear in the number of allocations.
    pub(crate) fn carried(&self) -> CarriedTraffic {
        let mut sums = self.carried.clone();
        self.iter().for_each(|allocation| sums.add(allocation));
        sums
    }

    /// Adds traffic that was reported after the removal of the allocation.
    pub(crate) fn carried_late(&mut self, client: &FiveTuple, traffic: &Traffic) {
        self.carried.add_for(client, traffic);
    }

    /// Sets the progress that an allocation had in the predecessor. Only traffic after this point
    /// is counted here, because the predecessor has counted the traffic before.
    pub(crate) fn set_progress(&mut self, slot: Slot, progress: Progress) {
        let allocation = self.get_mut(slot);
        let (five_tuple, before) = (allocation.path.five_tuple, allocation.traffic);
        allocation.set_progress(progress);
        let after = allocation.traffic;
        self.carried.add_for(&five_tuple, &before);
        self.carried.subtract_for(&five_tuple, &after);
    }

    /// Returns all allocations sorted by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.by_id.values().map(|&slot| self.get(slot))
    }

    /// Returns the allocations with an id above `after`, or all allocations, sorted by id.
    pub(crate) fn iter_after(
        &self,
        after: Option<AllocationId>,
    ) -> impl Iterator<Item = &Allocation> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(_, &slot)| self.get(slot))
    }

    /// Returns the slots of all allocations sorted by id.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.by_id.values().copied().collect()
    }

    /// Returns the slot of a client's allocation. The allocation may have expired without being
    /// reclaimed yet.
    pub(crate) fn of_client(&mut self, five_tuple: &FiveTuple) -> Option<Slot> {
        if let Some((last, slot)) = &self.last_client
            && last == five_tuple
        {
            return Some(*slot);
        }
        let slot = *self.by_client.get(five_tuple)?;
        self.last_client = Some((*five_tuple, slot));
        Some(slot)
    }

    /// Returns the slot of the allocation that receives a datagram from a peer. This allocation has
    /// a permission for the peer at the relayed address. The permission may have expired without
    /// being reclaimed yet.
    pub(crate) fn of_peer(&mut self, relay: RelayId, peer: PeerAddr) -> Option<Slot> {
        let key = PeerKey { relay, ip: peer.ip() };
        if let Some((last, slot)) = &self.last_peer
            && *last == key
        {
            return Some(*slot);
        }
        let slot = *self.by_peer.get(&key)?;
        self.last_peer = Some((key, slot));
        Some(slot)
    }

    /// Returns the slot of the allocation that a relay socket belongs to.
    pub(crate) fn of_relay(&self, relay: RelayId) -> Option<Slot> {
        self.by_relay.get(&relay).copied()
    }

    /// Returns the slot of the allocation with an id.
    pub(crate) fn of_id(&self, id: AllocationId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    /// Returns the allocation in a slot obtained from an index.
    pub(crate) fn get(&self, slot: Slot) -> &Allocation {
        self.slots[slot as usize].as_deref().expect("the indexes name only slots in use")
    }

    /// Returns the allocation in a slot obtained from an index. Change permissions, channels and
    /// relay sockets only through the methods below, which update the indexes.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Allocation {
        in_use(&mut self.slots, slot)
    }

    /// Adds an allocation, which has been or will soon be judged by the current policy.
    pub(crate) fn insert(&mut self, mut allocation: Allocation) -> Slot {
        allocation.revision = self.revision();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).expect("fewer allocations than 2^32")
        });
        if allocation.attached {
            self.by_client.insert(allocation.path.five_tuple, slot);
        }
        if let Some(next) = allocation.next_path() {
            self.by_client.insert(next.five_tuple, slot);
        }
        self.by_id.insert(allocation.id, slot);
        for socket in allocation.sockets.iter().flatten() {
            self.by_relay.insert(socket.relay, slot);
        }
        self.population.add(&allocation);
        self.carried.subtract(&allocation);
        self.slots[slot as usize] = Some(Box::new(allocation));
        self.arm(slot);
        slot
    }

    /// Removes and returns an allocation. The result has the remaining relay sockets.
    pub(crate) fn remove(&mut self, slot: Slot, outbox: &mut Outbox) -> Box<Allocation> {
        let sockets = IpFamily::ALL.map(|family| self.remove_socket(slot, family, outbox));
        let mut allocation = self.vacate(slot);
        allocation.sockets = sockets;
        allocation
    }

    /// Removes an allocation from the slots, the indexes by client and id, and the timers.
    fn vacate(&mut self, slot: Slot) -> Box<Allocation> {
        let allocation =
            self.slots[slot as usize].take().expect("the indexes name only slots in use");
        if allocation.attached {
            self.by_client.remove(&allocation.path.five_tuple);
        }
        if let Some(next) = allocation.next_path() {
            self.by_client.remove(&next.five_tuple);
        }
        self.by_id.remove(&allocation.id);
        self.changes.add(allocation.id);
        self.population.subtract(&allocation);
        self.carried.add(&allocation);
        (self.last_client, self.last_peer) = (None, None);
        self.timers.cancel(slot);
        self.free.push(slot);
        allocation
    }

    /// Expects the client of an allocation at another 5-tuple, and drops the previous expectation.
    pub(crate) fn expect_at(&mut self, slot: Slot, next: Next) {
        self.forget_next(slot);
        if let Next::Here(path) = &next {
            self.by_client.insert(path.five_tuple, slot);
        }
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        if let Some(mobility) = &mut allocation.mobility {
            mobility.next = Some(next);
        }
        self.changes.add(id);
    }

    /// Returns true if a 5-tuple is the current path of an allocation. The result is false for a
    /// path at which a client is only expected.
    pub(crate) fn carries(&mut self, five_tuple: &FiveTuple) -> bool {
        let slot = self.of_client(five_tuple);
        slot.is_some_and(|slot| self.get(slot).path.five_tuple == *five_tuple)
    }

    /// Drops the expectation of a client at another path or worker.
    pub(crate) fn forget_next(&mut self, slot: Slot) {
        let next = self.get_mut(slot).mobility.as_mut().and_then(|mobility| mobility.next.take());
        if let Some(Next::Here(path)) = next {
            self.by_client.remove(&path.five_tuple);
            self.last_client = None;
        }
    }

    /// Replaces the path of a client by the expected path. Returns the old 5-tuple and the new
    /// path.
    pub(crate) fn take_next_path(&mut self, slot: Slot) -> Option<(FiveTuple, ClientPath)> {
        let to = self.get(slot).next_path()?;
        if let Some(mobility) = &mut self.get_mut(slot).mobility {
            mobility.next = None;
        }
        self.detach(slot);
        let allocation = self.get_mut(slot);
        let from = core::mem::replace(&mut allocation.path, to).five_tuple;
        allocation.attached = true;
        allocation.quota.moved_to(&to.five_tuple);
        let (id, traffic) = (allocation.id, allocation.traffic);
        self.changes.add(id);
        self.carried.add_for(&from, &traffic);
        self.carried.subtract_for(&to.five_tuple, &traffic);
        self.population.moved(from.transport, to.five_tuple.transport);
        Some((from, to))
    }

    /// Removes the path of the client.
    pub(crate) fn detach(&mut self, slot: Slot) {
        let allocation = self.get_mut(slot);
        let (attached, five_tuple) = (allocation.attached, allocation.path.five_tuple);
        allocation.attached = false;
        let id = allocation.id;
        self.changes.add(id);
        if attached {
            self.by_client.remove(&five_tuple);
            self.last_client = None;
        }
    }

    /// Withdraws all routes of an allocation. The next update installs them again.
    pub(crate) fn withdraw_routes(&mut self, slot: Slot, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        for channel in allocation.channels.iter_mut() {
            outbox.withdraw_route(id, channel);
            channel.route = None;
        }
    }

    /// Removes an allocation unchanged, for another worker or process. The sockets and connections
    /// remain open.
    pub(crate) fn remove_whole(&mut self, slot: Slot) -> Allocation {
        let allocation = self.vacate(slot);
        for socket in allocation.sockets.iter().flatten() {
            self.by_relay.remove(&socket.relay);
            for permission in allocation.permissions.iter() {
                self.by_peer.remove(&PeerKey { relay: socket.relay, ip: permission.ip });
            }
        }
        for connection in allocation.connections.iter() {
            self.forget_connection(connection.id);
        }
        *allocation
    }

    /// Adds an allocation exported by another worker or process, with permissions and connections.
    pub(crate) fn insert_whole(&mut self, allocation: Allocation) -> Slot {
        let slot = self.insert(allocation);
        let Self { slots, by_peer, by_connection, connection_slots, .. } = self;
        let Some(allocation) = slots[slot as usize].as_deref() else { return slot };
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        for connection in allocation.connections.iter() {
            by_connection.insert(connection.id, (slot, connection_slots.keep(&claimant)));
        }
        for permission in allocation.permissions.iter() {
            if let Some(socket) = &allocation.sockets[IpFamily::of(permission.ip).index()] {
                by_peer.insert(PeerKey { relay: socket.relay, ip: permission.ip }, slot);
            }
        }
        slot
    }

    /// Removes the relay socket of a family from an allocation, with the permissions, channels and
    /// connections of this family.
    pub(crate) fn remove_socket(
        &mut self,
        slot: Slot,
        family: IpFamily,
        outbox: &mut Outbox,
    ) -> Option<RelaySocket> {
        self.retain_channels(slot, outbox, |channel| channel.peer.family() != family);
        self.retain_permissions(slot, |permission| IpFamily::of(permission.ip) != family);
        self.retain_connections(slot, outbox, |connection| connection.peer.family() != family);
        let socket = self.get_mut(slot).sockets[family.index()].take()?;
        self.by_relay.remove(&socket.relay);
        self.population.relayed[family.index()] -= 1;
        Some(socket)
    }

    /// Counts a refused request in the history of the client's allocation.
    pub(crate) fn count_refusal(&mut self, five_tuple: &FiveTuple, reason: Refusal) {
        if let Some(slot) = self.of_client(five_tuple) {
            self.get_mut(slot).history.refuse(reason);
        }
    }

    /// Creates or extends a permission. The allocation must have a relay socket of the peer's
    /// family.
    pub(crate) fn permit(&mut self, slot: Slot, permission: Permission) {
        let ip = permission.ip;
        let allocation = self.get_mut(slot);
        let Some(socket) = &allocation.sockets[IpFamily::of(ip).index()] else { return };
        let relay = socket.relay;
        allocation.permissions.install(permission);
        self.by_peer.insert(PeerKey { relay, ip }, slot);
    }

    /// Binds a channel or extends the binding.
    pub(crate) fn bind(&mut self, slot: Slot, channel: Channel, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        allocation.channels.bind(channel, |gone| outbox.withdraw_route(id, gone));
    }

    /// Removes expired permissions and channels, which would count against the limits.
    pub(crate) fn reclaim(&mut self, slot: Slot, now: Instant, outbox: &mut Outbox) {
        self.retain_channels(slot, outbox, |channel| now < channel.expires);
        self.retain_permissions(slot, |permission| now < permission.expires);
    }

    /// Judges every permission and channel again, and removes the forbidden ones. `judge` returns
    /// `None` for a forbidden address, and the ports of an address of this host.
    pub(crate) fn judge_peers(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        judge: impl Fn(IpAddr) -> Option<OwnPorts>,
    ) {
        let permitted = |ip, own: &mut OwnPorts| judge(ip).map(|judged| *own = judged).is_some();
        self.retain_channels(slot, outbox, |channel| {
            permitted(channel.peer.ip(), &mut channel.own)
        });
        self.retain_permissions(slot, |permission| permitted(permission.ip, &mut permission.own));
    }

    /// Sets the slot's timer to the next deadline of the allocation. Call this after each change of
    /// the allocation.
    pub(crate) fn arm(&mut self, slot: Slot) {
        let allocation = self.get(slot);
        let (id, deadline) = (allocation.id, allocation.next_deadline());
        self.changes.add(id);
        match deadline {
            Some(deadline) => self.timers.set(slot, deadline),
            None => self.timers.cancel(slot),
        }
    }

    /// Returns a slot with a due timer. The timer remains disarmed until [`Self::arm`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Slot> {
        self.timers.pop(now)
    }

    /// Returns the next time at which timers may be due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Sets whether realms compete for connections with peers.
    pub(crate) const fn set_realms_compete(&mut self, compete: bool) {
        self.connection_slots.set_realms_compete(compete);
    }

    /// Sets the maximum number of connections with peers. Existing connections remain.
    pub(crate) const fn set_connections_max(&mut self, most: u32) {
        self.connection_slots.set_capacity(most);
    }

    /// Returns true if an allocation may have another connection with a peer.
    pub(crate) fn may_connect(&self, slot: Slot) -> bool {
        let allocation = self.get(slot);
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        allocation.connections.len() < CONNECTIONS_PER_ALLOCATION_MAX
            && self.connection_slots.check(&claimant).is_ok()
    }

    /// Returns a random connection number that is not in use.
    pub(crate) fn free_connection_id(&self, worker: WorkerId, random: &mut Random) -> ConnectionId {
        loop {
            let id = ConnectionId::new(worker, random.u64() as u32);
            // Only a few thousand of four million numbers are in use, so the loop is short.
            if self.of_connection(id).is_none() {
                return id;
            }
        }
    }

    /// Returns the numbers of all connections.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.by_connection.keys().copied()
    }

    /// Returns the slot of the allocation that has a connection.
    pub(crate) fn of_connection(&self, id: ConnectionId) -> Option<Slot> {
        self.by_connection.get(&id).map(|(slot, _)| *slot)
    }

    pub(crate) fn add_connection(&mut self, slot: Slot, connection: PeerConnection) {
        let Self { slots, by_connection, connection_slots, .. } = self;
        let allocation = in_use(slots, slot);
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        by_connection.insert(connection.id, (slot, connection_slots.keep(&claimant)));
        allocation.connections.add(connection);
        self.arm(slot);
    }

    /// Records that the peer accepted a connection, which now waits for the client's
    /// ConnectionBind. Returns false if the connection was closed or abandoned in the meantime.
    pub(crate) fn connected(&mut self, id: ConnectionId, now: Instant) -> bool {
        let Some(slot) = self.of_connection(id) else { return false };
        let found = self.get_mut(slot).connections.get_mut(id);
        let is_wanted =
            |c: &&mut PeerConnection| c.phase == Phase::Connecting && c.deadline.is_some();
        let Some(connection) = found.filter(is_wanted) else { return false };
        *connection = PeerConnection::unbound(id, connection.peer, now);
        self.arm(slot);
        true
    }

    /// Removes a connection from the index. Returns the slot of its allocation.
    fn forget_connection(&mut self, id: ConnectionId) -> Option<Slot> {
        let (slot, share) = self.by_connection.remove(&id)?;
        self.connection_slots.release(share);
        Some(slot)
    }

    /// Removes a connection. Returns false if no connection has this number.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) -> bool {
        let Some(slot) = self.forget_connection(id) else { return false };
        self.get_mut(slot).connections.remove(id);
        self.arm(slot);
        true
    }

    /// Closes the connections for which `keep` returns false.
    pub(crate) fn retain_connections(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        keep: impl FnMut(&PeerConnection) -> bool,
    ) {
        let Self { slots, by_connection, connection_slots, .. } = self;
        let allocation = in_use(slots, slot);
        allocation.connections.retain(keep, |id| {
            if let Some((_, share)) = by_connection.remove(&id) {
                connection_slots.release(share);
            }
            outbox.tcp(TcpCommand::Close { connection: id });
        });
    }

    pub(super) fn retain_channels(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        keep: impl FnMut(&mut Channel) -> bool,
    ) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        allocation.channels.retain(keep, |gone| outbox.withdraw_route(id, gone));
    }

    pub(super) fn retain_permissions(
        &mut self,
        slot: Slot,
        keep: impl FnMut(&mut Permission) -> bool,
    ) {
        let Self { slots, by_peer, last_peer, .. } = self;
        let allocation = in_use(slots, slot);
        let relays =
            allocation.sockets.each_ref().map(|socket| socket.as_ref().map(|socket| socket.relay));
        allocation.permissions.retain(keep, |ip| {
            *last_peer = None;
            if let Some(relay) = relays[IpFamily::of(ip).index()] {
                by_peer.remove(&PeerKey { relay, ip });
            }
        });
    }
}

/// Returns the allocation in a slot obtained from an index.
fn in_use(slots: &mut [Option<Box<Allocation>>], slot: Slot) -> &mut Allocation {
    slots[slot as usize].as_deref_mut().expect("the indexes name only slots in use")
}
