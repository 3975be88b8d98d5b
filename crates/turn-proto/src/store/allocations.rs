//! All allocations of one worker, and the ways to find one: from the client's side by 5-tuple, from
//! the peers' side by relay socket *and* peer (so that one relay socket may serve several
//! allocations one day), by relay socket alone only to tell a closed one, and by id for operators.

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

/// Index of an allocation. Reused once the allocation is gone.
pub(crate) type Slot = u32;

/// Key of a datagram from a peer: relayed address and port, by the name that the worker has for
/// them, and the peer's address. Its port is no part of it, as a permission is for all ports of an
/// address (RFC 8656 §9). Several relayed addresses on one socket have a name each.
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
    /// Slots of connections with peers.
    connection_slots: Slots,
    /// The last found: packets come in runs.
    last_client: Option<(FiveTuple, Slot)>,
    last_peer: Option<(PeerKey, Slot)>,
    population: Population,
    /// Traffic of allocations that are gone, less that of live ones from before they came.
    carried: CarriedTraffic,
    /// One timer per slot, at the next deadline in its allocation.
    timers: Timers,
    /// Those that a copy elsewhere does not have yet.
    pub(crate) changes: Changes,
    pub(super) review: Review,
    /// The driver wants routes.
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

    /// Returns true if the driver wants routes.
    pub(crate) const fn has_routes(&self) -> bool {
        self.has_routes
    }

    /// Revision of the current policy.
    pub(crate) const fn revision(&self) -> PolicyRevision {
        self.review.revision
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Their numbers by kind.
    pub(crate) const fn population(&self) -> Population {
        self.population
    }

    /// Traffic relayed so far. Visits all allocations.
    pub(crate) fn carried(&self) -> CarriedTraffic {
        let mut sums = self.carried.clone();
        self.iter().for_each(|allocation| sums.add(allocation));
        sums
    }

    /// Adds traffic that became known when its allocation was gone.
    pub(crate) fn carried_late(&mut self, client: &FiveTuple, traffic: &Traffic) {
        self.carried.add_for(client, traffic);
    }

    /// Goes on where another process was, which has counted the traffic until then.
    pub(crate) fn set_progress(&mut self, slot: Slot, progress: Progress) {
        let allocation = self.get_mut(slot);
        let (five_tuple, before) = (allocation.path.five_tuple, allocation.traffic);
        allocation.set_progress(progress);
        let after = allocation.traffic;
        self.carried.add_for(&five_tuple, &before);
        self.carried.subtract_for(&five_tuple, &after);
    }

    /// All of them, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.by_id.values().map(|&slot| self.get(slot))
    }

    /// The ones with a higher id than `after`, or all of them, in the order of their ids.
    pub(crate) fn iter_after(
        &self,
        after: Option<AllocationId>,
    ) -> impl Iterator<Item = &Allocation> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(_, &slot)| self.get(slot))
    }

    /// Their slots, in the order of their ids.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.by_id.values().copied().collect()
    }

    /// The slot of the allocation of a 5-tuple, also of one that has expired and is not reclaimed.
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

    /// The slot of the allocation that a datagram from a peer is for: the one with a permission for
    /// it at the relayed address, perhaps expired and not yet reclaimed.
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

    /// The slot of the allocation that a relay socket was opened for.
    pub(crate) fn of_relay(&self, relay: RelayId) -> Option<Slot> {
        self.by_relay.get(&relay).copied()
    }

    /// The slot of an allocation by its id.
    pub(crate) fn of_id(&self, id: AllocationId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    /// The allocation in a slot that an index gave.
    pub(crate) fn get(&self, slot: Slot) -> &Allocation {
        self.slots[slot as usize].as_deref().expect("the indexes name only slots in use")
    }

    /// The allocation in a slot that an index gave. Permissions, channels and relay sockets are
    /// changed through the verbs below, which keep the indexes.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Allocation {
        in_use(&mut self.slots, slot)
    }

    /// Adds an allocation judged by the current policy, now or soon.
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

    /// Takes an allocation out, with the relay sockets that it still has.
    pub(crate) fn remove(&mut self, slot: Slot, outbox: &mut Outbox) -> Box<Allocation> {
        let sockets = IpFamily::ALL.map(|family| self.remove_socket(slot, family, outbox));
        let mut allocation = self.vacate(slot);
        allocation.sockets = sockets;
        allocation
    }

    /// Takes an allocation out of its slot and of the indexes by client, id and time.
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

    /// Expects the client of an allocation at another 5-tuple, and no longer where it was expected
    /// before.
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

    /// Returns true if a 5-tuple is the path of an allocation, and not only where its client is
    /// expected.
    pub(crate) fn carries(&mut self, five_tuple: &FiveTuple) -> bool {
        let slot = self.of_client(five_tuple);
        slot.is_some_and(|slot| self.get(slot).path.five_tuple == *five_tuple)
    }

    /// No longer expects the client of an allocation elsewhere.
    pub(crate) fn forget_next(&mut self, slot: Slot) {
        let next = self.get_mut(slot).mobility.as_mut().and_then(|mobility| mobility.next.take());
        if let Some(Next::Here(path)) = next {
            self.by_client.remove(&path.five_tuple);
            self.last_client = None;
        }
    }

    /// Makes the path at which a client is expected its only one: the old 5-tuple, and the new
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

    /// Forgets the path of the client.
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

    /// Withdraws all routes of an allocation; the next update installs them again.
    pub(crate) fn withdraw_routes(&mut self, slot: Slot, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        for channel in allocation.channels.iter_mut() {
            outbox.withdraw_route(id, channel);
            channel.route = None;
        }
    }

    /// Takes an allocation out as it is, for another worker or process.
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

    /// Adds an allocation as it was elsewhere, with its permissions.
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

    /// Takes one relay socket out of an allocation, with its permissions and channels.
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

    /// Counts a refused request for the allocation of its 5-tuple, if there is one.
    pub(crate) fn count_refusal(&mut self, five_tuple: &FiveTuple, reason: Refusal) {
        if let Some(slot) = self.of_client(five_tuple) {
            self.get_mut(slot).history.refuse(reason);
        }
    }

    /// Makes a permission or gives it a new end. The allocation must have a relay socket of its
    /// family.
    pub(crate) fn permit(&mut self, slot: Slot, permission: Permission) {
        let ip = permission.ip;
        let allocation = self.get_mut(slot);
        let Some(socket) = &allocation.sockets[IpFamily::of(ip).index()] else { return };
        let relay = socket.relay;
        allocation.permissions.install(permission);
        self.by_peer.insert(PeerKey { relay, ip }, slot);
    }

    /// Binds a channel or gives it a new end.
    pub(crate) fn bind(&mut self, slot: Slot, channel: Channel, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        allocation.channels.bind(channel, |gone| outbox.withdraw_route(id, gone));
    }

    /// Removes expired permissions and channels, so that they do not count any more.
    pub(crate) fn reclaim(&mut self, slot: Slot, now: Instant, outbox: &mut Outbox) {
        self.retain_channels(slot, outbox, |channel| now < channel.expires);
        self.retain_permissions(slot, |permission| now < permission.expires);
    }

    /// Judges every permission and channel anew. `judge` returns `None` for a forbidden address,
    /// and the ports of one of ours.
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

    /// Sets the slot's timer to the next deadline of its allocation, which has changed.
    pub(crate) fn arm(&mut self, slot: Slot) {
        let allocation = self.get(slot);
        let (id, deadline) = (allocation.id, allocation.next_deadline());
        self.changes.add(id);
        match deadline {
            Some(deadline) => self.timers.set(slot, deadline),
            None => self.timers.cancel(slot),
        }
    }

    /// A slot with a due timer, which stays disarmed until [`Self::arm`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Slot> {
        self.timers.pop(now)
    }

    /// The next time at which timers may be due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Sets if realms compete for connections with peers.
    pub(crate) const fn set_realms_compete(&mut self, compete: bool) {
        self.connection_slots.set_realms_compete(compete);
    }

    /// Sets the largest number of connections with peers. Those that are there stay.
    pub(crate) const fn set_connections_max(&mut self, most: u32) {
        self.connection_slots.set_capacity(most);
    }

    /// Returns true if an allocation may have one more connection with a peer.
    pub(crate) fn may_connect(&self, slot: Slot) -> bool {
        let allocation = self.get(slot);
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        allocation.connections.len() < CONNECTIONS_PER_ALLOCATION_MAX
            && self.connection_slots.check(&claimant).is_ok()
    }

    /// A number that no connection has.
    pub(crate) fn free_connection_id(&self, worker: WorkerId, random: &mut Random) -> ConnectionId {
        loop {
            let id = ConnectionId::new(worker, random.u64() as u32);
            // Of four million numbers a few thousand are taken.
            if self.of_connection(id).is_none() {
                return id;
            }
        }
    }

    /// The numbers of all connections.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.by_connection.keys().copied()
    }

    /// The slot of the allocation that has a connection.
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

    /// Makes a connection wait for the client's after its peer has accepted it; false if it was
    /// given up meanwhile.
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

    /// Forgets a connection; false if there is none of this number.
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

/// The allocation in a slot that an index gave.
fn in_use(slots: &mut [Option<Box<Allocation>>], slot: Slot) -> &mut Allocation {
    slots[slot as usize].as_deref_mut().expect("the indexes name only slots in use")
}
