//! All allocations of one worker, and the ways to find one: from the client's side by 5-tuple, from
//! the peers' side by relay socket *and* peer (so that one relay socket may serve several allocations
//! one day), by relay socket alone only to tell a closed one, and by id for operators.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use ahash::RandomState;
use hashbrown::HashMap;
use turn_types::{AllocationId, ClientPath, ConnectionId, FiveTuple, Instant, IpFamily, RelayId};

use crate::allocation::{Allocation, Half, index_of};
use crate::channel::Channel;
use crate::command::TcpCommand;
use crate::connection::{PeerConnection, Phase};
use crate::mobility::Next;
use crate::outbox::Outbox;
use crate::permission::{OwnPorts, Permission};
use crate::timer_wheel::TimerWheel;

/// Where an allocation is kept. Reused once the allocation is gone.
pub(crate) type Slot = u32;

#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Option<Box<Allocation>>>,
    free: Vec<Slot>,
    by_client: HashMap<FiveTuple, Slot, RandomState>,
    by_peer: HashMap<(RelayId, IpAddr), Slot, RandomState>,
    by_relay: HashMap<RelayId, Slot, RandomState>,
    by_id: BTreeMap<AllocationId, Slot>,
    by_connection: HashMap<ConnectionId, Slot, RandomState>,
    /// The last found: packets come in runs.
    last_client: Option<(FiveTuple, Slot)>,
    last_peer: Option<((RelayId, IpAddr), Slot)>,
    /// One timer per slot, at the next deadline in its allocation.
    timers: TimerWheel,
}

impl Table {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_client: HashMap::with_hasher(hasher.clone()),
            by_peer: HashMap::with_hasher(hasher.clone()),
            by_relay: HashMap::with_hasher(hasher.clone()),
            by_id: BTreeMap::new(),
            by_connection: HashMap::with_hasher(hasher),
            last_client: None,
            last_peer: None,
            timers: TimerWheel::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All of them, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.by_id.values().map(|&slot| self.get(slot))
    }

    /// Their slots, in the order of their ids.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.by_id.values().copied().collect()
    }

    /// The slot of the allocation of a 5-tuple, also of one that has run out and is not reclaimed.
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

    /// The slot of the allocation that has (or had, until it is reclaimed) a permission for a peer
    /// at a relay socket.
    pub(crate) fn of_peer(&mut self, relay: RelayId, ip: IpAddr) -> Option<Slot> {
        if let Some((last, slot)) = &self.last_peer
            && *last == (relay, ip)
        {
            return Some(*slot);
        }
        let slot = *self.by_peer.get(&(relay, ip))?;
        self.last_peer = Some(((relay, ip), slot));
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

    /// The allocation in a slot that an index gave. Permissions, channels and halves are changed
    /// through the table, which keeps its indexes.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Allocation {
        self.slots[slot as usize].as_deref_mut().expect("the indexes name only slots in use")
    }

    pub(crate) fn insert(&mut self, allocation: Allocation) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).expect("fewer allocations than 2^32")
        });
        if allocation.attached {
            self.by_client.insert(allocation.path.five_tuple, slot);
        }
        self.by_id.insert(allocation.id, slot);
        for half in allocation.halves.iter().flatten() {
            self.by_relay.insert(half.relay, slot);
        }
        self.slots[slot as usize] = Some(Box::new(allocation));
        self.arm(slot);
        slot
    }

    /// Takes an allocation out, with whatever halves it still has.
    pub(crate) fn remove(&mut self, slot: Slot, outbox: &mut Outbox) -> Box<Allocation> {
        let halves = IpFamily::ALL.map(|family| self.remove_half(slot, family, outbox));
        let mut allocation =
            self.slots[slot as usize].take().expect("the indexes name only slots in use");
        allocation.halves = halves;
        if allocation.attached {
            self.by_client.remove(&allocation.path.five_tuple);
        }
        if let Some(next) = allocation.mobility.as_ref().and_then(|mobility| mobility.next_here()) {
            self.by_client.remove(&next.five_tuple);
        }
        self.by_id.remove(&allocation.id);
        self.last_client = None;
        self.timers.cancel(slot);
        self.free.push(slot);
        allocation
    }

    /// Expects the client of an allocation at another 5-tuple, and no longer where it was expected before.
    pub(crate) fn expect_at(&mut self, slot: Slot, next: Next) {
        self.forget_next(slot);
        if let Next::Here(path) = &next {
            self.by_client.insert(path.five_tuple, slot);
        }
        if let Some(mobility) = &mut self.get_mut(slot).mobility {
            mobility.next = Some(next);
        }
    }

    /// No longer expects the client of an allocation elsewhere.
    pub(crate) fn forget_next(&mut self, slot: Slot) {
        let next = self.get_mut(slot).mobility.as_mut().and_then(|mobility| mobility.next.take());
        if let Some(Next::Here(path)) = next {
            self.by_client.remove(&path.five_tuple);
            self.last_client = None;
        }
    }

    /// Makes the path at which a client is expected its only one: the old 5-tuple, and the new path.
    pub(crate) fn take_next_path(&mut self, slot: Slot) -> Option<(FiveTuple, ClientPath)> {
        let mobility = self.get_mut(slot).mobility.as_mut()?;
        let to = *mobility.next_here()?;
        mobility.next = None;
        self.detach(slot);
        let allocation = self.get_mut(slot);
        let from = core::mem::replace(&mut allocation.path, to).five_tuple;
        allocation.attached = true;
        Some((from, to))
    }

    /// Forgets the way to the client.
    pub(crate) fn detach(&mut self, slot: Slot) {
        let allocation = self.get_mut(slot);
        let (attached, five_tuple) = (allocation.attached, allocation.path.five_tuple);
        allocation.attached = false;
        if attached {
            self.by_client.remove(&five_tuple);
            self.last_client = None;
        }
    }

    /// Withdraws all routes of an allocation; they are told anew when it is announced.
    pub(crate) fn withdraw_routes(&mut self, slot: Slot, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        for channel in allocation.channels.iter_mut() {
            outbox.let_go(id, channel);
            channel.announced = None;
        }
    }

    /// Takes an allocation out as it is, for another worker.
    pub(crate) fn remove_whole(&mut self, slot: Slot) -> Box<Allocation> {
        let allocation =
            self.slots[slot as usize].take().expect("the indexes name only slots in use");
        for half in allocation.halves.iter().flatten() {
            self.by_relay.remove(&half.relay);
            for permission in allocation.permissions.iter() {
                self.by_peer.remove(&(half.relay, permission.ip));
            }
        }
        if allocation.attached {
            self.by_client.remove(&allocation.path.five_tuple);
        }
        self.by_id.remove(&allocation.id);
        (self.last_client, self.last_peer) = (None, None);
        self.timers.cancel(slot);
        self.free.push(slot);
        allocation
    }

    /// Adds an allocation as it was elsewhere, with its permissions.
    pub(crate) fn insert_whole(&mut self, allocation: Box<Allocation>) -> Slot {
        let slot = self.insert(*allocation);
        let Self { slots, by_peer, .. } = self;
        let Some(allocation) = slots[slot as usize].as_deref() else { return slot };
        for permission in allocation.permissions.iter() {
            let half = &allocation.halves[index_of(IpFamily::of(permission.ip))];
            if let Some(half) = half {
                by_peer.insert((half.relay, permission.ip), slot);
            }
        }
        slot
    }

    /// Takes one half out of an allocation, with its permissions and channels.
    pub(crate) fn remove_half(
        &mut self,
        slot: Slot,
        family: IpFamily,
        outbox: &mut Outbox,
    ) -> Option<Half> {
        self.retain_channels(slot, outbox, |channel| channel.peer.family() != family);
        self.retain_permissions(slot, |permission| IpFamily::of(permission.ip) != family);
        self.retain_connections(slot, outbox, |connection| connection.peer.family() != family);
        let half = self.get_mut(slot).halves[index_of(family)].take()?;
        self.by_relay.remove(&half.relay);
        Some(half)
    }

    /// Makes a permission or gives it a new end. The allocation must have a half of its family.
    pub(crate) fn permit(&mut self, slot: Slot, permission: Permission) {
        let ip = permission.ip;
        let allocation = self.get_mut(slot);
        let Some(half) = &allocation.halves[index_of(IpFamily::of(ip))] else { return };
        let relay = half.relay;
        allocation.permissions.install(permission);
        self.by_peer.insert((relay, ip), slot);
    }

    /// Binds a channel or gives it a new end.
    pub(crate) fn bind(&mut self, slot: Slot, channel: Channel, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        allocation.channels.bind(channel, |gone| outbox.let_go(id, gone));
    }

    /// Lets go of permissions and channels that have run out, so that they do not count any more.
    pub(crate) fn reclaim(&mut self, slot: Slot, now: Instant, outbox: &mut Outbox) {
        self.retain_channels(slot, outbox, |channel| now < channel.expires);
        self.retain_permissions(slot, |permission| now < permission.expires);
    }

    /// Judges every permission and channel anew. `judge` says by address whether it stays, and
    /// whether it is one of ours.
    pub(crate) fn judge_peers(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        judge: impl Fn(IpAddr) -> Option<OwnPorts>,
    ) {
        self.retain_channels(slot, outbox, |channel| match judge(channel.peer.ip()) {
            Some(own) => {
                channel.own = own;
                true
            }
            None => false,
        });
        self.retain_permissions(slot, |permission| match judge(permission.ip) {
            Some(own) => {
                permission.own = own;
                true
            }
            None => false,
        });
    }

    /// Sets the slot's timer to the next deadline of its allocation.
    pub(crate) fn arm(&mut self, slot: Slot) {
        match self.get(slot).next_deadline() {
            Some(deadline) => self.timers.set(slot, deadline),
            None => self.timers.cancel(slot),
        }
    }

    /// A slot whose timer is due. It stays disarmed until [`Self::arm`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Slot> {
        self.timers.pop(now)
    }

    /// When to look for due timers.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// How many connections with peers there are.
    pub(crate) fn connection_count(&self) -> usize {
        self.by_connection.len()
    }

    /// The slot of the allocation that has a connection.
    pub(crate) fn of_connection(&self, id: ConnectionId) -> Option<Slot> {
        self.by_connection.get(&id).copied()
    }

    pub(crate) fn add_connection(&mut self, slot: Slot, connection: PeerConnection) {
        self.by_connection.insert(connection.id, slot);
        self.get_mut(slot).connections.add(connection);
        self.arm(slot);
    }

    /// A connection that was being made is there, and waits for the client's from now on; false if
    /// nobody wants it any more.
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

    /// Forgets a connection; false if there is none of this number.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) -> bool {
        let Some(slot) = self.by_connection.remove(&id) else { return false };
        self.get_mut(slot).connections.remove(id);
        self.arm(slot);
        true
    }

    /// Has those connections closed that `keep` does not keep.
    pub(crate) fn retain_connections(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        keep: impl FnMut(&PeerConnection) -> bool,
    ) {
        let Self { slots, by_connection, .. } = self;
        let allocation =
            slots[slot as usize].as_deref_mut().expect("the indexes name only slots in use");
        allocation.connections.retain(keep, |id| {
            by_connection.remove(&id);
            outbox.tcp(TcpCommand::Close { connection: id });
        });
    }

    fn retain_channels(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        keep: impl FnMut(&mut Channel) -> bool,
    ) {
        let allocation = self.get_mut(slot);
        let id = allocation.id;
        allocation.channels.retain(keep, |gone| outbox.let_go(id, gone));
    }

    fn retain_permissions(&mut self, slot: Slot, keep: impl FnMut(&mut Permission) -> bool) {
        let Self { slots, by_peer, last_peer, .. } = self;
        let allocation =
            slots[slot as usize].as_deref_mut().expect("the indexes name only slots in use");
        let relays = allocation.halves.each_ref().map(|half| half.as_ref().map(|half| half.relay));
        allocation.permissions.retain(keep, |ip| {
            *last_peer = None;
            if let Some(relay) = relays[index_of(IpFamily::of(ip))] {
                by_peer.remove(&(relay, ip));
            }
        });
    }
}
