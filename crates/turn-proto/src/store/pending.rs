//! Pending requests, which wait for a user's keys, for relay sockets, for a peer, or for another
//! worker. Pending requests are bounded in number and time. A retransmission of a pending request
//! is not processed again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, LOGGED_IN, Share, Shortage, Slots};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry as Slot;
use stun_wire::TransactionId;
use turn_types::{ClientPath, ConnectionId, FiveTuple, Instant, PendingId};

use super::pending_allocation::PendingAllocation;
use crate::io::{Responder, TicketRefresh};
use crate::limits::{
    PENDING_AUTHORIZATIONS_MAX, PENDING_CONNECTS_MAX, PENDING_KNOWN_USERS_MAX, PENDING_LIFETIME,
    PENDING_MAX, PENDING_OTHERS_MAX, PENDING_USERS_MAX, PENDING_USERS_PER_FIVE_TUPLE_MAX,
    USER_LOOKUP_WITHIN,
};

/// Key of a request, and of retransmissions: the 5-tuple and the transaction (RFC 8489 §6.3.1).
pub(crate) type RequestKey = (FiveTuple, TransactionId);

#[derive(Debug)]
pub(crate) enum Waiting {
    /// Keys of a user. The request is stored unchanged, and is processed again with the keys.
    User(UserLookup),
    /// Keys of an allocation's user. No request waits.
    Keys,
    /// Consent of the authorizer, for an Allocate that passed every check.
    Authorizer(Box<PendingAllocation>),
    /// Second user look-up of an Allocate, after the authorizer's consent. The time is the start of
    /// the look-up.
    Confirmation(Box<PendingAllocation>, Instant),
    /// Relay sockets, for an Allocate with claimed ports.
    Relay(Box<PendingAllocation>),
    /// Connection that a peer must accept.
    Connect(Box<PendingConnect>),
    /// Response of another worker to a Refresh by ticket.
    Worker(Box<PendingMove>),
}

impl Waiting {
    /// Returns true if an allocation may move to the 5-tuple of the waiting request (RFC 8016).
    const fn is_move(&self) -> bool {
        match self {
            Self::User(lookup) => lookup.request.by_ticket,
            Self::Worker(_) => true,
            Self::Keys
            | Self::Authorizer(_)
            | Self::Confirmation(..)
            | Self::Relay(_)
            | Self::Connect(_) => false,
        }
    }
}

/// Request as received.
#[derive(Debug)]
pub(crate) struct DeferredRequest {
    pub(crate) path: ClientPath,
    pub(crate) arrived: Instant,
    pub(crate) bytes: Box<[u8]>,
    /// True for a Refresh with a ticket of this server.
    pub(crate) by_ticket: bool,
}

/// Request that waits for a user's keys.
#[derive(Debug)]
pub(crate) struct UserLookup {
    pub(crate) request: DeferredRequest,
    /// True if the client has the keys of the allocation on the request's 5-tuple.
    pub(crate) known: bool,
}

/// Connect that waits for the peer.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    pub(crate) responder: Responder,
    pub(crate) connection: ConnectionId,
}

/// Refresh by ticket that waits for the worker of the allocation.
#[derive(Debug)]
pub(crate) struct PendingMove {
    pub(crate) responder: Responder,
    pub(crate) path: ClientPath,
    pub(crate) refresh: TicketRefresh,
    pub(crate) began: Instant,
    /// Time of the last query to the other worker.
    pub(crate) asked: Instant,
}

/// Kinds of waits. Each kind has separate slots, so waits for one party block no other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// User look-up of a client without an allocation.
    User,
    /// User look-up for an allocation's client.
    KnownUser,
    /// Authorizer, or the user look-up after the authorizer's consent.
    Authorizer,
    /// Peer.
    Connect,
    /// Relay sockets, or another worker.
    Other,
}

/// Slot of a request that will wait, for [`Pending::insert`].
#[derive(Debug)]
#[must_use = "a slot that is not inserted counts for ever"]
pub(crate) struct PendingSlot {
    wait: Wait,
    share: Share,
}

#[derive(Debug)]
struct Entry {
    key: RequestKey,
    waiting: Waiting,
    slot: PendingSlot,
}

#[derive(Debug)]
pub(crate) struct Pending {
    entries: HashMap<PendingId, Entry, RandomState>,
    /// Requests of each 5-tuple.
    by_five_tuple: HashMap<FiveTuple, Vec<PendingId>, RandomState>,
    ends: Ends,
    /// Deadlines of user look-ups.
    lookup_ends: Ends,
    /// Slots of each kind.
    slots: [Slots; Wait::ALL.len()],
    next_id: u64,
}

impl Wait {
    const ALL: [Self; 5] =
        [Self::User, Self::KnownUser, Self::Authorizer, Self::Connect, Self::Other];

    fn slots(self, hasher: RandomState) -> Slots {
        let (levels, capacity) = match self {
            Self::User => (&CLIENTS, PENDING_USERS_MAX),
            Self::KnownUser => (&LOGGED_IN, PENDING_KNOWN_USERS_MAX),
            Self::Authorizer => (&LOGGED_IN, PENDING_AUTHORIZATIONS_MAX),
            Self::Connect => (&LOGGED_IN, PENDING_CONNECTS_MAX),
            Self::Other => (&LOGGED_IN, PENDING_OTHERS_MAX),
        };
        Slots::new(levels, capacity, hasher)
    }

    const fn of(waiting: &Waiting) -> Self {
        match waiting {
            Waiting::User(UserLookup { known: false, .. }) => Self::User,
            Waiting::User(UserLookup { known: true, .. }) | Waiting::Keys => Self::KnownUser,
            Waiting::Authorizer(_) | Waiting::Confirmation(..) => Self::Authorizer,
            Waiting::Connect(_) => Self::Connect,
            Waiting::Relay(_) | Waiting::Worker(_) => Self::Other,
        }
    }
}

/// Deadlines of waits, oldest first. All waits of a list are equally long, so appending keeps the
/// order. Some of these waits may be over already.
#[derive(Debug, Default)]
struct Ends(VecDeque<(PendingId, Instant)>);

impl Ends {
    /// Removes the deadlines of ended waits from the front, so the first deadline belongs to a live
    /// wait. Other ended waits accumulate only while the oldest wait lasts. The list is compacted
    /// when its length exceeds twice the maximum number of waits.
    fn forget(&mut self, is_over: impl Fn(&PendingId) -> bool) {
        while self.0.front().is_some_and(|(id, _)| is_over(id)) {
            self.0.pop_front();
        }
        if self.0.len() > 2 * PENDING_MAX {
            self.0.retain(|(id, _)| !is_over(id));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.0.front().map(|&(_, end)| end)
    }
}

impl Pending {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            entries: HashMap::with_hasher(hasher.clone()),
            by_five_tuple: HashMap::with_hasher(hasher.clone()),
            ends: Ends::default(),
            lookup_ends: Ends::default(),
            slots: Wait::ALL.map(|wait| wait.slots(hasher.clone())),
            next_id: 0,
        }
    }

    /// Sets whether realms compete for the slots.
    pub(crate) fn set_realms_compete(&mut self, compete: bool) {
        self.slots.iter_mut().for_each(|slots| slots.set_realms_compete(compete));
    }

    /// Returns true if a request with this key waits.
    pub(crate) fn holds(&self, key: &RequestKey) -> bool {
        self.on(&key.0).any(|entry| entry.key == *key)
    }

    /// Returns true if an Allocate on this 5-tuple waits for the authorizer or for relay sockets.
    pub(crate) fn is_opening(&self, five_tuple: &FiveTuple) -> bool {
        let opens = |waiting: &Waiting| match waiting {
            Waiting::Authorizer(_) | Waiting::Confirmation(..) | Waiting::Relay(_) => true,
            Waiting::User(_) | Waiting::Keys | Waiting::Connect(_) | Waiting::Worker(_) => false,
        };
        self.on(five_tuple).any(|entry| opens(&entry.waiting))
    }

    /// Returns true if a Refresh by ticket on this 5-tuple waits.
    pub(crate) fn is_moving(&self, five_tuple: &FiveTuple) -> bool {
        self.on(five_tuple).any(|entry| entry.waiting.is_move())
    }

    /// Returns the requests of a 5-tuple. A 5-tuple has a few look-ups, and at most one Connect for
    /// each permitted connection of the allocation.
    fn on(&self, five_tuple: &FiveTuple) -> impl Iterator<Item = &Entry> {
        let ids = self.by_five_tuple.get(five_tuple).into_iter().flatten();
        ids.filter_map(|id| self.entries.get(id))
    }

    /// Checks that another request of a client may wait.
    ///
    /// # Errors
    /// All slots of this kind are in use, or few are left and the client's share is used up.
    pub(crate) fn check(&self, wait: Wait, claimant: &Claimant<'_>) -> Result<(), Shortage> {
        self.slots[wait as usize].check(claimant)
    }

    /// Returns true if another user look-up of a 5-tuple may wait.
    pub(crate) fn may_look_up(&self, five_tuple: &FiveTuple) -> bool {
        let is_lookup = |entry: &&Entry| matches!(entry.waiting, Waiting::User(_));
        self.on(five_tuple).filter(is_lookup).count() < PENDING_USERS_PER_FIVE_TUPLE_MAX
    }

    /// Takes a slot for a client's request, after [`Self::check`].
    pub(crate) fn take_slot(&mut self, wait: Wait, claimant: &Claimant<'_>) -> PendingSlot {
        PendingSlot { wait, share: self.slots[wait as usize].keep(claimant) }
    }

    /// Adds a client's request to a slot from [`Self::take_slot`].
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: RequestKey,
        slot: PendingSlot,
        waiting: Waiting,
    ) -> PendingId {
        debug_assert_eq!(slot.wait, Wait::of(&waiting), "a slot of this kind");
        let id = PendingId(self.next_id);
        self.next_id += 1;
        if let Waiting::User(_) | Waiting::Keys | Waiting::Confirmation(..) = &waiting {
            self.lookup_ends.0.push_back((id, now + USER_LOOKUP_WITHIN));
        }
        self.by_five_tuple.entry(key.0).or_default().push(id);
        self.entries.insert(id, Entry { key, waiting, slot });
        self.ends.0.push_back((id, now + PENDING_LIFETIME));
        id
    }

    /// Returns the Allocate that waits for relay sockets under an id.
    pub(crate) fn allocation(&mut self, id: PendingId) -> Option<&mut PendingAllocation> {
        let Waiting::Relay(allocation) = &mut self.entries.get_mut(&id)?.waiting else {
            return None;
        };
        Some(allocation)
    }

    /// Returns the arrival of the request that waits under an id for the user, the authorizer or
    /// relay sockets. For a second user look-up the result is the start of the look-up.
    pub(crate) fn waits_since(&self, id: PendingId) -> Option<Instant> {
        match &self.entries.get(&id)?.waiting {
            Waiting::User(lookup) => Some(lookup.request.arrived),
            Waiting::Authorizer(allocation) | Waiting::Relay(allocation) => {
                Some(allocation.arrived)
            }
            Waiting::Confirmation(_, since) => Some(*since),
            Waiting::Keys | Waiting::Connect(_) | Waiting::Worker(_) => None,
        }
    }

    /// Returns the start of the Refresh by ticket that waits under an id for another worker.
    pub(crate) fn move_began(&self, id: PendingId) -> Option<Instant> {
        let Waiting::Worker(pending) = &self.entries.get(&id)?.waiting else { return None };
        Some(pending.began)
    }

    /// Returns all requests that wait for other workers. The costs are linear in the number of
    /// pending requests.
    pub(crate) fn moves(&mut self) -> impl Iterator<Item = (PendingId, &mut PendingMove)> {
        self.entries.iter_mut().filter_map(|(id, entry)| {
            let Waiting::Worker(pending) = &mut entry.waiting else { return None };
            Some((*id, &mut **pending))
        })
    }

    /// Removes a wait and releases the slot.
    pub(crate) fn take(&mut self, id: PendingId) -> Option<Waiting> {
        let entry = self.entries.remove(&id)?;
        if let Slot::Occupied(mut of) = self.by_five_tuple.entry(entry.key.0) {
            of.get_mut().retain(|other| *other != id);
            if of.get().is_empty() {
                of.remove();
            }
        }
        let PendingSlot { wait, share } = entry.slot;
        self.slots[wait as usize].release(share);
        self.ends.forget(|id| !self.entries.contains_key(id));
        self.lookup_ends.forget(|id| !self.entries.contains_key(id));
        Some(entry.waiting)
    }

    /// Returns a request with an overdue user look-up. The request continues to wait, and the
    /// caller must resume it without the look-up. Each request is returned once.
    pub(crate) fn take_overdue_lookup(&mut self, now: Instant) -> Option<PendingId> {
        let &(id, end) = self.lookup_ends.0.front()?;
        if now < end {
            return None;
        }
        self.lookup_ends.0.pop_front();
        self.lookup_ends.forget(|id| !self.entries.contains_key(id));
        Some(id)
    }

    /// Removes a request that waits for a user's keys; `None` for any other wait.
    pub(crate) fn take_user(&mut self, id: PendingId) -> Option<DeferredRequest> {
        let Waiting::User(_) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::User(lookup) = self.take(id)? else { return None };
        Some(lookup.request)
    }

    /// Removes the wait for an allocation's keys. Returns the 5-tuple of the allocation; `None` for
    /// any other wait.
    pub(crate) fn take_keys(&mut self, id: PendingId) -> Option<FiveTuple> {
        let Entry { waiting: Waiting::Keys, key: (five_tuple, _), .. } = self.entries.get(&id)?
        else {
            return None;
        };
        let five_tuple = *five_tuple;
        self.take(id)?;
        Some(five_tuple)
    }

    /// Removes an Allocate that waits for the authorizer; `None` for any other wait.
    pub(crate) fn take_authorization(&mut self, id: PendingId) -> Option<PendingAllocation> {
        let Waiting::Authorizer(_) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::Authorizer(allocation) = self.take(id)? else { return None };
        Some(*allocation)
    }

    /// Removes an Allocate that waits for the second user look-up; `None` for any other wait.
    pub(crate) fn take_confirmation(&mut self, id: PendingId) -> Option<PendingAllocation> {
        let Waiting::Confirmation(..) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::Confirmation(allocation, _) = self.take(id)? else { return None };
        Some(*allocation)
    }

    /// Removes an Allocate that waits for relay sockets; `None` for any other wait.
    pub(crate) fn take_allocation(&mut self, id: PendingId) -> Option<PendingAllocation> {
        let Waiting::Relay(_) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::Relay(allocation) = self.take(id)? else { return None };
        Some(*allocation)
    }

    /// Removes a Connect that waits for the peer; `None` for any other wait.
    pub(crate) fn take_connect(&mut self, id: PendingId) -> Option<PendingConnect> {
        let Waiting::Connect(_) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::Connect(connect) = self.take(id)? else { return None };
        Some(*connect)
    }

    /// Removes a Refresh that waits for another worker; `None` for any other wait.
    pub(crate) fn take_move(&mut self, id: PendingId) -> Option<PendingMove> {
        let Waiting::Worker(_) = self.entries.get(&id)?.waiting else { return None };
        let Waiting::Worker(pending) = self.take(id)? else { return None };
        Some(*pending)
    }

    /// Removes a request that the client has abandoned by now.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Waiting> {
        let &(id, end) = self.ends.0.front()?;
        if now < end { None } else { self.take(id) }
    }

    /// Removes the oldest request.
    pub(crate) fn take_oldest(&mut self) -> Option<Waiting> {
        let &(id, _) = self.ends.0.front()?;
        self.take(id)
    }

    /// Removes the newest request of a 5-tuple.
    pub(crate) fn take_of(&mut self, five_tuple: &FiveTuple) -> Option<Waiting> {
        let id = *self.by_five_tuple.get(five_tuple)?.last()?;
        self.take(id)
    }

    /// Removes the newest request.
    pub(crate) fn take_newest(&mut self) -> Option<Waiting> {
        loop {
            let (id, _) = self.ends.0.pop_back()?;
            if let Some(waiting) = self.take(id) {
                return Some(waiting);
            }
        }
    }

    /// Returns the next deadline of a wait or user look-up.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.next().into_iter().chain(self.lookup_ends.next()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use core::time::Duration;
    use turn_types::{ClientAddr, ServerAddr, SocketId, Transport};

    fn path(port: u16) -> ClientPath {
        let five_tuple = FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], port).into()),
            server: ServerAddr(([198, 51, 100, 1], 3478).into()),
        };
        ClientPath { five_tuple, socket: SocketId(0) }
    }

    fn lookup(port: u16) -> UserLookup {
        let bytes = Box::from([]);
        UserLookup {
            request: DeferredRequest {
                path: path(port),
                arrived: Instant::ZERO,
                bytes,
                by_ticket: false,
            },
            known: false,
        }
    }

    fn wait(pending: &mut Pending, now: Instant, port: u16) -> PendingId {
        let key = (path(port).five_tuple, TransactionId([1; 12]));
        let claimant = Claimant::at(path(port).five_tuple.client.ip());
        let slot = pending.take_slot(Wait::User, &claimant);
        pending.insert(now, key, slot, Waiting::User(lookup(port)))
    }

    fn new() -> Pending {
        Pending::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    #[test]
    fn ends_in_order_and_answered_ones_leave_no_trace() {
        let mut pending = new();
        let second = Duration::from_secs(1);
        let first = wait(&mut pending, Instant::ZERO, 1);
        let later = wait(&mut pending, Instant::ZERO + second, 2);
        assert!(pending.holds(&(path(1).five_tuple, TransactionId([1; 12]))));
        assert!(pending.take(first).is_some());
        assert!(pending.take(first).is_none());
        assert!(!pending.holds(&(path(1).five_tuple, TransactionId([1; 12]))));
        let end = Instant::ZERO + second + PENDING_LIFETIME;
        assert_eq!(pending.next_end(), Some(Instant::ZERO + second + USER_LOOKUP_WITHIN));
        assert_eq!(pending.take_overdue_lookup(end), Some(later));
        assert_eq!(pending.take_overdue_lookup(end), None);
        assert_eq!(pending.next_end(), Some(end));
        assert!(pending.take_expired(Instant::from_nanos(end.as_nanos() - 1)).is_none());
        assert!(pending.take_expired(end).is_some());
        assert!(pending.take(later).is_none());
        assert_eq!(pending.next_end(), None);
    }

    #[test]
    fn one_that_is_never_answered_does_not_let_the_queue_grow() {
        let mut pending = new();
        wait(&mut pending, Instant::ZERO, 0);
        for _ in 0..5 * PENDING_MAX {
            let id = wait(&mut pending, Instant::ZERO, 1);
            pending.take(id);
        }
        assert!(pending.ends.0.len() <= 2 * PENDING_MAX + 1);
        assert!(pending.lookup_ends.0.len() <= 2 * PENDING_MAX + 1);
        assert_eq!(pending.entries.len(), 1);
        assert_eq!(pending.next_end(), Some(Instant::ZERO + USER_LOOKUP_WITHIN));
        assert!(pending.take_expired(Instant::ZERO + PENDING_LIFETIME).is_some());
    }

    #[test]
    fn look_ups_that_are_overdue_together_are_all_found() {
        let mut pending = new();
        let ids = [1, 2, 3].map(|port| wait(&mut pending, Instant::ZERO, port));
        pending.take(ids[1]);
        let overdue = Instant::ZERO + USER_LOOKUP_WITHIN;
        let found = std::iter::from_fn(|| pending.take_overdue_lookup(overdue));
        assert_eq!(found.collect::<Vec<_>>(), [ids[0], ids[2]]);
    }

    #[test]
    fn each_kind_of_wait_has_slots_of_its_own() {
        let mut pending = new();
        let key = (path(1).five_tuple, TransactionId([1; 12]));
        // Clients of many networks, so the table fills before a share does.
        let client =
            |number: u32| Claimant::at(IpAddr::from(((number + 0x1000) << 16).to_be_bytes()));
        for number in 0..u32::MAX {
            if pending.check(Wait::User, &client(number)).is_err() {
                assert_eq!(number, PENDING_USERS_MAX);
                break;
            }
            let waiting = Waiting::User(lookup(1));
            let slot = pending.take_slot(Wait::User, &client(number));
            pending.insert(Instant::ZERO, key, slot, waiting);
        }
        for other in &Wait::ALL[1..] {
            assert_eq!(pending.check(*other, &client(1)), Ok(()), "{other:?}");
        }
        pending.take_oldest();
        let newcomer = Claimant::at([2, 2, 2, 2].into());
        assert_eq!(pending.check(Wait::User, &newcomer), Ok(()));
    }

    #[test]
    fn a_5_tuple_finds_what_waits_on_it_and_leaves_nothing() {
        let mut pending = new();
        let ids: Vec<_> = (1..=100).map(|port| wait(&mut pending, Instant::ZERO, port)).collect();
        assert_eq!(pending.by_five_tuple.len(), 100);
        assert!(pending.take_of(&path(50).five_tuple).is_some());
        assert!(pending.take_of(&path(50).five_tuple).is_none());
        for id in ids {
            pending.take(id);
        }
        assert!(pending.by_five_tuple.is_empty());
        assert!(pending.next_end().is_none());
        assert!(pending.slots.iter().all(|slots| slots.held() == 0));
    }
}
