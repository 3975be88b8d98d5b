//! Clients of other workers' allocations who are about to be here (RFC 8016). They have shown a ticket on
//! a 5-tuple of ours and been answered; their allocation is fetched when they send anything but that
//! request again. Until then it stays where it is, with its client's other 5-tuple.

use ahash::RandomState;
use hashbrown::HashMap;
use stun_wire::TransactionId;
use turn_types::{AllocationId, ClientPath, FiveTuple, Instant};

use crate::allocation::Credentials;
use crate::limits::{ARRIVALS_MAX, MOVE_AGAIN_AFTER};
use crate::request::mobile::Granted;

#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) allocation: AllocationId,
    pub(crate) path: ClientPath,
    /// Whose it is: nobody needs to be looked up.
    pub(crate) credentials: Credentials,
    /// What the Refresh by ticket was answered, to know a retransmission by.
    pub(crate) transaction: TransactionId,
    pub(crate) granted: Granted,
    /// When the allocation ends unless it is prolonged.
    pub(crate) expires: Instant,
    /// When its worker was asked for it last.
    pub(crate) asked: Option<Instant>,
}

/// At most [`ARRIVALS_MAX`], and one of each allocation.
#[derive(Debug)]
pub(crate) struct Arrivals {
    by_client: HashMap<FiveTuple, Arrival, RandomState>,
    by_allocation: HashMap<AllocationId, FiveTuple, RandomState>,
    /// When the next one runs out, or before.
    sweep_at: Option<Instant>,
}

impl Arrivals {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            by_client: HashMap::with_hasher(hasher.clone()),
            by_allocation: HashMap::with_hasher(hasher),
            sweep_at: None,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_client.len() >= ARRIVALS_MAX
    }

    /// Who is expected on a 5-tuple.
    pub(crate) fn get(&self, five_tuple: &FiveTuple, now: Instant) -> Option<&Arrival> {
        self.by_client.get(five_tuple).filter(|arrival| now < arrival.expires)
    }

    /// Whether anybody is expected on a 5-tuple, perhaps no longer.
    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.by_client.contains_key(five_tuple)
    }

    /// Expects a client, and the same allocation's nowhere else: the 5-tuple where it was expected before.
    pub(crate) fn insert(&mut self, arrival: Arrival) -> Option<FiveTuple> {
        let five_tuple = arrival.path.five_tuple;
        self.remove(&five_tuple);
        let before = self.by_allocation.insert(arrival.allocation, five_tuple);
        if let Some(before) = &before {
            self.by_client.remove(before);
        }
        let expires = arrival.expires;
        self.sweep_at = Some(self.sweep_at.map_or(expires, |at| at.min(expires)));
        self.by_client.insert(five_tuple, arrival);
        before
    }

    pub(crate) fn remove(&mut self, five_tuple: &FiveTuple) -> Option<Arrival> {
        let arrival = self.by_client.remove(five_tuple)?;
        self.by_allocation.remove(&arrival.allocation);
        Some(arrival)
    }

    /// Notes that somebody expected here has been heard. Returns whose allocation is to be fetched, unless
    /// that was asked for a moment ago.
    pub(crate) fn heard(&mut self, five_tuple: &FiveTuple, now: Instant) -> Option<AllocationId> {
        let arrival = self.by_client.get_mut(five_tuple)?;
        if arrival.asked.is_some_and(|asked| now.saturating_since(asked) < MOVE_AGAIN_AFTER) {
            return None;
        }
        arrival.asked = Some(now);
        Some(arrival.allocation)
    }

    /// Clients that were heard and whose allocation has not come.
    pub(crate) fn fetched(&self) -> impl Iterator<Item = (FiveTuple, Instant)> {
        let arrivals = self.by_client.iter();
        arrivals.filter_map(|(five_tuple, arrival)| Some((*five_tuple, arrival.asked?)))
    }

    /// When [`Self::sweep`] is due.
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Forgets who did not come.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let by_allocation = &mut self.by_allocation;
        self.by_client.retain(|_, arrival| {
            let stays = now < arrival.expires;
            if !stays {
                by_allocation.remove(&arrival.allocation);
            }
            stays
        });
        self.sweep_at = self.by_client.values().map(|arrival| arrival.expires).min();
    }
}
