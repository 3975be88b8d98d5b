//! Shares of a table: the number of entries of each client.

use ahash::RandomState;
use hashbrown::HashMap;

use crate::claimant::{Claimant, Nodes};
use crate::levels::{Levels, UNIT};

/// Part of a table, as a divisor, that is free before shares count: while the table has more
/// space, one client may have all.
const SCARCE: u64 = 8;

/// Entries of a full table that are compared to find the one that makes room. A client that has a
/// tenth of the table is found in 96 of 100 cases, one that has half of it always.
const COMPARED: usize = 32;

/// Number of entries of each client in a table.
///
/// The table itself belongs to the caller. It claims a [`Share`] before it adds an entry, keeps the
/// share with the entry, and releases it when it removes the entry.
#[derive(Debug)]
pub struct Slots {
    levels: &'static Levels,
    capacity: u32,
    held: u32,
    /// Entries of each network, account and realm that has any.
    counts: HashMap<u64, u32, RandomState>,
    hasher: RandomState,
    /// State of a generator that chooses the entries to compare.
    choice: u64,
}

/// The slot of one entry, with the networks, the account and the realm that it counts for.
#[derive(Debug)]
#[must_use = "a share that is not released counts for ever"]
pub struct Share(Nodes);

/// Reason for which a table has no slot for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Every slot is in use.
    Table,
    /// Few slots are free, and the client, its network, account or realm has its share.
    Share,
}

impl Slots {
    /// Slots of an empty table of `capacity` entries. The hasher has a secret seed.
    #[must_use]
    pub fn new(levels: &'static Levels, capacity: u32, hasher: RandomState) -> Self {
        let choice = hasher.hash_one(capacity) | 1;
        let counts = HashMap::with_hasher(hasher.clone());
        Self { levels, capacity, held: 0, counts, hasher, choice }
    }

    /// Number of slots in use.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Number of slots in the table.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Changes the number of slots. Slots in use stay in use.
    pub const fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// Claims a slot.
    ///
    /// # Errors
    /// The table is full, or the client has its share of a table that is nearly full. Nothing was
    /// claimed.
    pub fn claim(&mut self, claimant: &Claimant<'_>) -> Result<Share, Shortage> {
        self.check(claimant)?;
        Ok(self.keep(claimant))
    }

    /// Checks that a client could claim a slot.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn check(&self, claimant: &Claimant<'_>) -> Result<(), Shortage> {
        if self.held >= self.capacity {
            return Err(Shortage::Table);
        }
        let nodes = claimant.nodes(self.levels, &self.hasher);
        if self.largest_use(&nodes, 1) <= self.allowance() {
            return Ok(());
        }
        Err(Shortage::Share)
    }

    /// Claims a slot for an entry that exists already, even beyond the capacity: another process
    /// has admitted it.
    pub fn keep(&mut self, claimant: &Claimant<'_>) -> Share {
        self.held += 1;
        let nodes = claimant.nodes(self.levels, &self.hasher);
        for node in nodes.iter() {
            *self.counts.entry(node.key).or_insert(0) += 1;
        }
        Share(nodes)
    }

    /// Releases a slot.
    #[expect(clippy::needless_pass_by_value, reason = "a share is released once")]
    pub fn release(&mut self, share: Share) {
        self.held = self.held.saturating_sub(1);
        for node in share.0.iter() {
            if let Some(count) = self.counts.get_mut(&node.key) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&node.key);
                }
            }
        }
    }

    /// Returns the position of the entry that makes room for one of `newcomer` in a full table, if
    /// it may have one: an entry of the client with the largest use among some that are chosen at
    /// random.
    ///
    /// `share_at` returns the share of each of the `entries` in the table, in the order of their age
    /// with the oldest first. The newest entry of a client with more use than the
    /// newcomer makes room. Where all have the same use the oldest makes room, as its client had
    /// the most time. A newcomer of the client with the largest use replaces its own oldest entry.
    /// A newcomer with more use than all entries that were compared gets no slot.
    ///
    /// The caller drops the entry and releases its slot.
    pub fn rival<'a>(
        &mut self,
        newcomer: &Claimant<'_>,
        entries: usize,
        share_at: impl Fn(usize) -> &'a Share,
    ) -> Option<usize> {
        let own = newcomer.nodes(self.levels, &self.hasher);
        let [before, after] = [0, 1].map(|more| self.largest_use(&own, more));
        let mut rival: Option<Rival> = None;
        for position in self.sample(entries) {
            let used = self.largest_use(&share_at(position).0, 0);
            match &mut rival {
                Some(rival) => rival.consider(position, used),
                None => rival = Some(Rival { used, oldest: position, newest: position }),
            }
        }
        let rival = rival.filter(|rival| rival.used >= before)?;
        Some(if rival.used > after { rival.newest } else { rival.oldest })
    }

    /// Use of a client with `more` entries: the largest of its networks', its account's and its
    /// realm's, each divided by the weight of its level. [`UNIT`] is one entry of a single address.
    fn largest_use(&self, nodes: &Nodes, more: u32) -> u64 {
        let used = nodes.iter().map(|node| {
            let count = self.counts.get(&node.key).copied().unwrap_or(0);
            u64::from(count + more) * u64::from(node.units)
        });
        used.max().unwrap_or(0)
    }

    /// Largest use with which a client may still get a slot: no limit while an eighth of the table
    /// is free, a quarter of the table then, and less by the square of the free part. The square
    /// leaves slots to clients without any when thousands of others take what they may. A client
    /// that has none, in a network with few, gets any slot that is free.
    fn allowance(&self) -> u64 {
        let (free, capacity) = (u64::from(self.capacity - self.held), u64::from(self.capacity));
        if free * SCARCE >= capacity {
            return u64::MAX;
        }
        let square = u64::from(UNIT) * free * free * (SCARCE * SCARCE / 4) / capacity;
        square.max(u64::from(UNIT))
    }

    /// Positions of entries to compare, in their order: all of a small table, otherwise one at
    /// random of each part.
    fn sample(&mut self, entries: usize) -> impl Iterator<Item = usize> + use<> {
        let part = if entries <= 2 * COMPARED { 1 } else { entries / COMPARED };
        let mut choice = self.choice;
        // The next comparison begins elsewhere.
        self.choice = xorshift(choice);
        (0..entries / part).map(move |number| {
            choice = xorshift(choice.rotate_left(32));
            number * part + (choice % part as u64) as usize
        })
    }
}

/// A generator whose state is secret: a client sees no outcome to learn the state from.
const fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// The client with the largest use among those that were compared, by positions of its entries.
struct Rival {
    used: u64,
    oldest: usize,
    newest: usize,
}

impl Rival {
    fn consider(&mut self, position: usize, used: u64) {
        if used > self.used {
            *self = Self { used, oldest: position, newest: position };
        } else if used == self.used {
            self.newest = position;
        }
    }
}

#[cfg(test)]
mod tests;
