//! Requests that wait for an answer from outside: for a user's keys, for relay sockets, or for a peer. They are
//! bounded in number and time, and a retransmission of one that waits is not taken twice.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use ahash::RandomState;
use hashbrown::{HashMap, HashSet};
use stun_wire::TransactionId;
use turn_types::{ClientPath, FiveTuple, Instant, PendingId};

use crate::handover::Asking;
use crate::limits::{PENDING_CONNECTS_MAX, PENDING_LIFETIME, PENDING_MAX, PENDING_USERS_MAX};
use crate::request::connect::Connecting;
use crate::request::opening::Opening;

/// What tells a retransmission: the same transaction on the same 5-tuple (RFC 8489 §6.3.1).
pub(crate) type RequestKey = (FiveTuple, TransactionId);

#[derive(Debug)]
pub(crate) enum Waiting {
    /// For a user's keys. The request is kept as it came, and is processed again with them.
    User(Parked),
    /// For relay sockets: an Allocate that passed every check.
    Relay(Box<Opening>),
    /// For a peer to accept a connection.
    Connect(Box<Connecting>),
    /// For another worker's answer to a Refresh by ticket.
    Worker(Box<Asking>),
}

impl Waiting {
    /// Whether an allocation may come to the 5-tuple by it (RFC 8016).
    const fn is_move(&self) -> bool {
        match self {
            Self::User(parked) => parked.by_ticket,
            Self::Worker(_) => true,
            Self::Relay(_) | Self::Connect(_) => false,
        }
    }
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) path: ClientPath,
    pub(crate) request: Box<[u8]>,
    /// Whether it is a Refresh by a ticket of ours.
    pub(crate) by_ticket: bool,
}

#[derive(Debug)]
struct Entry {
    key: RequestKey,
    waiting: Waiting,
}

#[derive(Debug)]
pub(crate) struct Pending {
    entries: HashMap<PendingId, Entry, RandomState>,
    keys: HashSet<RequestKey, RandomState>,
    /// 5-tuples whose Allocate waits for its relay sockets.
    opening: HashSet<FiveTuple, RandomState>,
    /// 5-tuples on which a Refresh by ticket waits, and how many do.
    moving: HashMap<FiveTuple, u32, RandomState>,
    /// In the order of their ends, as all wait equally long; some may be answered already.
    ends: VecDeque<(PendingId, Instant)>,
    next_id: u64,
    /// How many wait for peers.
    connects: usize,
}

impl Pending {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            entries: HashMap::with_hasher(hasher.clone()),
            keys: HashSet::with_hasher(hasher.clone()),
            opening: HashSet::with_hasher(hasher.clone()),
            moving: HashMap::with_hasher(hasher),
            ends: VecDeque::new(),
            next_id: 0,
            connects: 0,
        }
    }

    /// Whether this very request waits.
    pub(crate) fn holds(&self, key: &RequestKey) -> bool {
        self.keys.contains(key)
    }

    /// Whether an Allocate on this 5-tuple waits for its relay sockets.
    pub(crate) fn is_opening(&self, five_tuple: &FiveTuple) -> bool {
        self.opening.contains(five_tuple)
    }

    /// Whether a Refresh by ticket on this 5-tuple waits.
    pub(crate) fn is_moving(&self, five_tuple: &FiveTuple) -> bool {
        self.moving.contains_key(five_tuple)
    }

    /// Whether nothing more may wait.
    pub(crate) fn is_full(&self) -> bool {
        // Ends of answered requests are let go of from the front only, hence the second bound.
        self.entries.len() >= PENDING_MAX
    }

    /// Whether no further request may wait for its user.
    pub(crate) fn is_full_of_users(&self) -> bool {
        self.entries.len() >= PENDING_USERS_MAX
    }

    /// Whether no further request may wait for its peer.
    pub(crate) fn is_full_of_connects(&self) -> bool {
        self.is_full() || self.connects >= PENDING_CONNECTS_MAX
    }

    /// Lets a request wait. The caller has asked [`Self::is_full`] or one of the others.
    pub(crate) fn insert(&mut self, now: Instant, key: RequestKey, waiting: Waiting) -> PendingId {
        let id = PendingId(self.next_id);
        self.next_id += 1;
        match waiting {
            Waiting::Relay(_) => drop(self.opening.insert(key.0)),
            Waiting::Connect(_) => self.connects += 1,
            Waiting::User(_) | Waiting::Worker(_) => {}
        }
        if waiting.is_move() {
            *self.moving.entry(key.0).or_default() += 1;
        }
        self.keys.insert(key);
        self.entries.insert(id, Entry { key, waiting });
        self.ends.push_back((id, now + PENDING_LIFETIME));
        id
    }

    /// The Allocate that waits under this id, if one does.
    pub(crate) fn opening(&mut self, id: PendingId) -> Option<&mut Opening> {
        match &mut self.entries.get_mut(&id)?.waiting {
            Waiting::Relay(opening) => Some(opening),
            Waiting::User(_) | Waiting::Connect(_) | Waiting::Worker(_) => None,
        }
    }

    /// The Refresh by ticket that waits under this id for another worker, if one does.
    pub(crate) fn asking(&mut self, id: PendingId) -> Option<&mut Asking> {
        asking(&mut self.entries.get_mut(&id)?.waiting)
    }

    /// All that wait for other workers. Looks at everything that waits.
    pub(crate) fn all_asking(&mut self) -> impl Iterator<Item = (PendingId, &mut Asking)> {
        let entries = self.entries.iter_mut();
        entries.filter_map(|(id, entry)| Some((*id, asking(&mut entry.waiting)?)))
    }

    /// Ends the wait.
    pub(crate) fn take(&mut self, id: PendingId) -> Option<Waiting> {
        let entry = self.entries.remove(&id)?;
        self.keys.remove(&entry.key);
        match entry.waiting {
            Waiting::Relay(_) => drop(self.opening.remove(&entry.key.0)),
            Waiting::Connect(_) => self.connects -= 1,
            Waiting::User(_) | Waiting::Worker(_) => {}
        }
        if entry.waiting.is_move()
            && let Some(count) = self.moving.get_mut(&entry.key.0)
        {
            *count -= 1;
            if *count == 0 {
                self.moving.remove(&entry.key.0);
            }
        }
        self.forget_answered();
        Some(entry.waiting)
    }

    /// Ends the wait of a request for its user; `None` if it does not wait for that.
    pub(crate) fn take_user(&mut self, id: PendingId) -> Option<Parked> {
        match &self.entries.get(&id)?.waiting {
            Waiting::Relay(_) | Waiting::Connect(_) | Waiting::Worker(_) => return None,
            Waiting::User(_) => {}
        }
        match self.take(id)? {
            Waiting::User(parked) => Some(parked),
            Waiting::Relay(_) | Waiting::Connect(_) | Waiting::Worker(_) => None,
        }
    }

    /// Ends the wait of a Connect for its peer; `None` if it does not wait for that.
    pub(crate) fn take_connect(&mut self, id: PendingId) -> Option<Connecting> {
        match &self.entries.get(&id)?.waiting {
            Waiting::Relay(_) | Waiting::User(_) | Waiting::Worker(_) => return None,
            Waiting::Connect(_) => {}
        }
        match self.take(id)? {
            Waiting::Connect(connecting) => Some(*connecting),
            Waiting::Relay(_) | Waiting::User(_) | Waiting::Worker(_) => None,
        }
    }

    /// Ends the wait of a Refresh for another worker's answer; `None` if it does not wait for that.
    pub(crate) fn take_asking(&mut self, id: PendingId) -> Option<Asking> {
        match self.take(id)? {
            Waiting::Worker(asking) => Some(*asking),
            Waiting::User(_) | Waiting::Relay(_) | Waiting::Connect(_) => None,
        }
    }

    /// Ends the wait of a request that nobody waits for any more.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Waiting> {
        let &(id, end) = self.ends.front()?;
        if now < end { None } else { self.take(id) }
    }

    /// Ends the wait of any request: the oldest first.
    pub(crate) fn take_oldest(&mut self) -> Option<Waiting> {
        let &(id, _) = self.ends.front()?;
        self.take(id)
    }

    /// Ends the wait of a request on a 5-tuple, if there is one. Looks at all of them.
    pub(crate) fn take_of(&mut self, five_tuple: &FiveTuple) -> Option<Waiting> {
        let mut of = self.ends.iter().map(|&(id, _)| id);
        let waits =
            |id: &PendingId| self.entries.get(id).is_some_and(|entry| entry.key.0 == *five_tuple);
        let id = of.find(waits)?;
        self.take(id)
    }

    /// When the next wait ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.front().map(|&(_, end)| end)
    }

    /// Keeps the front of the ends a live one. Those behind it are bounded by what can be answered
    /// within one lifetime of the oldest, and are compacted when they outnumber the live ones.
    fn forget_answered(&mut self) {
        while let Some((id, _)) = self.ends.front() {
            if self.entries.contains_key(id) {
                break;
            }
            self.ends.pop_front();
        }
        if self.ends.len() > 2 * PENDING_MAX {
            let entries = &self.entries;
            self.ends.retain(|(id, _)| entries.contains_key(id));
        }
    }
}

fn asking(waiting: &mut Waiting) -> Option<&mut Asking> {
    match waiting {
        Waiting::Worker(asking) => Some(asking),
        Waiting::User(_) | Waiting::Relay(_) | Waiting::Connect(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn wait(pending: &mut Pending, now: Instant, port: u16) -> PendingId {
        let key = (path(port).five_tuple, TransactionId([1; 12]));
        let waiting =
            Waiting::User(Parked { path: path(port), request: Box::from([]), by_ticket: false });
        pending.insert(now, key, waiting)
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
        assert!(pending.ends.len() <= 2 * PENDING_MAX + 1);
        assert_eq!(pending.entries.len(), 1);
    }
}
