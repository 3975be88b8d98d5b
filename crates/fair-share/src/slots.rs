//! Shares of a table: the number of entries of each client.

use ahash::RandomState;
use hashbrown::HashMap;
use turn_types::Prefix;

use crate::claimant::{Claimant, Node, NodeKind, Nodes};
use crate::levels::{Levels, UNIT};

/// Free part of a table, as a divisor, below which shares apply. While more of the table is free,
/// one client may have all entries.
const SCARCE: u64 = 8;

/// Number of the last slots of a small table to which shares apply, a quarter of the table at most.
/// An eighth would be two or three slots, which are for other realms: other users of the realm
/// would get nothing.
const FEW: u32 = 8;

/// Weight of a network in a small table, at most a part of the table: this divisor. With the full
/// weight, one `/48` may take the last twelve slots of any table, and a `/32` the last forty.
const SMALL: u32 = 16;

/// The same for a realm. One user with most of a small table would otherwise take the last slots
/// from the realm.
const SMALL_REALM: u32 = 4;

/// Number of entries of a full table that are compared to choose an entry to drop. The sample has
/// an entry of a client with a tenth of the table in 96 of 100 cases.
const COMPARED: usize = 32;

/// Number of entries of each client in a table.
///
/// The caller owns the table: claims a [`Share`] before adding an entry, stores the share with the
/// entry, and releases the share after removing the entry. An entry may have the weight of several:
/// a table of bytes has an entry of `n` bytes in `n` slots.
#[derive(Debug)]
pub struct Slots {
    levels: &'static Levels,
    capacity: u32,
    held: u32,
    /// Entries of each network, account and realm that has any.
    counts: HashMap<u64, u32, RandomState>,
    /// Several realms share the table.
    realms_compete: bool,
    hasher: RandomState,
    /// State of a generator that chooses the entries to compare.
    choice: u64,
}

/// Slots of one entry, with the charged networks, account and realm.
#[derive(Debug)]
#[must_use = "a share that is not released counts for ever"]
pub struct Share {
    nodes: Nodes,
    slots: u32,
}

/// Size of a table, with the free part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Number of free slots.
    pub free: u32,
    /// Number of all slots.
    pub capacity: u32,
}

/// Reason for which a table has no slot for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Every slot is in use.
    Table,
    /// Few slots are free, and the client, the network, the account or the realm has a full share.
    Share,
}

/// Level at which a client is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseLevel {
    /// A network around the address.
    Network(Prefix),
    /// The account.
    Account,
    /// The realm.
    Realm,
}

impl Slots {
    /// Slots of an empty table of `capacity` entries. The hasher has a secret seed.
    #[must_use]
    pub fn new(levels: &'static Levels, capacity: u32, hasher: RandomState) -> Self {
        let choice = hasher.hash_one(capacity) | 1;
        let counts = HashMap::with_hasher(hasher.clone());
        Self { levels, capacity, held: 0, counts, realms_compete: true, hasher, choice }
    }

    /// Sets if realms compete for the slots. A realm that has all clients must not keep slots free
    /// from itself.
    pub const fn set_realms_compete(&mut self, compete: bool) {
        self.realms_compete = compete;
    }

    /// Sets the number of slots in the table. Entries beyond it stay.
    pub const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
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

    /// Number of entries at the smallest level of a client: of the address.
    #[must_use]
    pub fn held_by(&self, claimant: &Claimant<'_>) -> u32 {
        let nodes = claimant.nodes(self.levels, &self.hasher);
        nodes.iter().next().map_or(0, |node| self.count(node))
    }

    /// Number of entries of a client's account, at all addresses; 0 where accounts are not counted.
    #[must_use]
    pub fn held_by_account(&self, claimant: &Claimant<'_>) -> u32 {
        self.held_at(claimant, NodeKind::Account)
    }

    /// Number of entries of a client's realm; 0 where realms are not counted.
    #[must_use]
    pub fn held_by_realm(&self, claimant: &Claimant<'_>) -> u32 {
        self.held_at(claimant, NodeKind::Realm)
    }

    fn held_at(&self, claimant: &Claimant<'_>, kind: NodeKind) -> u32 {
        let nodes = claimant.nodes(self.levels, &self.hasher);
        nodes.iter().find(|node| node.kind == kind).map_or(0, |node| self.count(node))
    }

    /// Claims a slot.
    ///
    /// # Errors
    /// The table is full, or the client has a full share of a nearly full table. Nothing was
    /// claimed.
    pub fn claim(&mut self, claimant: &Claimant<'_>) -> Result<Share, Shortage> {
        self.check(claimant)?;
        Ok(self.keep(claimant))
    }

    /// Checks that a client could claim a slot.
    ///
    /// # Errors
    /// The same errors as [`claim`](Self::claim).
    pub fn check(&self, claimant: &Claimant<'_>) -> Result<(), Shortage> {
        self.check_slots(claimant, 1)
    }

    /// Checks that a client could claim the slots of one entry.
    ///
    /// # Errors
    /// The same errors as [`claim`](Self::claim).
    pub fn check_slots(&self, claimant: &Claimant<'_>, slots: u32) -> Result<(), Shortage> {
        let free = self.capacity.saturating_sub(self.held);
        self.check_supply(claimant, slots, Supply { free, capacity: self.capacity })
    }

    /// Checks that a client with the present use could get `slots` slots of another table, whose
    /// entries are entries of this table as well. 0 slots: the entry is counted already.
    ///
    /// # Errors
    /// The table is full, or the client has a full share of a nearly full table.
    pub fn check_supply(
        &self,
        claimant: &Claimant<'_>,
        slots: u32,
        supply: Supply,
    ) -> Result<(), Shortage> {
        if supply.free < slots.max(1) {
            return Err(Shortage::Table);
        }
        if !supply.is_scarce() {
            return Ok(());
        }
        let nodes = claimant.nodes(self.levels, &self.hasher);
        let units = |node: Node| u64::from(supply.units(node));
        let used = |node: Node| u64::from(self.count(node) + slots) * units(node);
        let [used, lone] = [
            self.limiting(&nodes).map(used).sum::<u64>(),
            self.limiting(&nodes).map(units).sum::<u64>(),
        ];
        // A client that shares no network, account or realm with an entry gets any free slot.
        if used <= supply.allowance().max(lone) { Ok(()) } else { Err(Shortage::Share) }
    }

    /// Level with the largest part of a client's use, for the explanation of a
    /// [`Shortage::Share`]. `None`: the client is counted at no level.
    #[must_use]
    pub fn largest_use(&self, claimant: &Claimant<'_>) -> Option<UseLevel> {
        let mut networks = claimant.networks(self.levels);
        let nodes = claimant.nodes(self.levels, &self.hasher);
        let uses = nodes.iter().filter_map(|node| {
            let level = match node.kind {
                NodeKind::Network => UseLevel::Network(networks.next()?.0),
                NodeKind::Account => UseLevel::Account,
                NodeKind::Realm if self.realms_compete => UseLevel::Realm,
                NodeKind::Realm => return None,
            };
            Some((u64::from(self.count(node)) * u64::from(node.units), level))
        });
        uses.max_by_key(|(used, _)| *used).map(|(_, level)| level)
    }

    /// Claims a slot for an entry that exists already, even beyond the capacity.
    pub fn keep(&mut self, claimant: &Claimant<'_>) -> Share {
        self.keep_slots(claimant, 1)
    }

    /// Claims the slots of one entry that exists already, even beyond the capacity.
    pub fn keep_slots(&mut self, claimant: &Claimant<'_>, slots: u32) -> Share {
        self.held = self.held.saturating_add(slots);
        let nodes = claimant.nodes(self.levels, &self.hasher);
        for node in nodes.iter() {
            *self.counts.entry(node.key).or_insert(0) += slots;
        }
        Share { nodes, slots }
    }

    /// Releases the slots of an entry.
    #[expect(clippy::needless_pass_by_value, reason = "a share is released once")]
    pub fn release(&mut self, share: Share) {
        self.held = self.held.saturating_sub(share.slots);
        for node in share.nodes.iter() {
            if let Some(count) = self.counts.get_mut(&node.key) {
                *count = count.saturating_sub(share.slots);
                if *count == 0 {
                    self.counts.remove(&node.key);
                }
            }
        }
    }

    /// Returns the position of the entry to drop from a full table for an entry of `newcomer`: an
    /// entry of the client with the largest use in a random sample. `None`: the newcomer has more
    /// use than every client in the sample, and gets no slot.
    ///
    /// `share_at` returns the share of an entry by position, 0..`entries`, sorted by age with the
    /// oldest entry first. A client with more use than the newcomer loses the newest entry. Among
    /// clients with the same use the oldest entry is dropped, after the longest time. A newcomer
    /// that has the largest use already loses the oldest own entry.
    ///
    /// The caller drops the entry and releases the share.
    pub fn rival<'a>(
        &mut self,
        newcomer: &Claimant<'_>,
        entries: usize,
        share_at: impl Fn(usize) -> &'a Share,
    ) -> Option<usize> {
        let own = newcomer.nodes(self.levels, &self.hasher);
        let [before, after] = [0, 1].map(|more| self.whole_use(&own, more));
        let mut rival: Option<Rival> = None;
        for position in self.sample(entries) {
            let used = self.whole_use(&share_at(position).nodes, 0);
            match &mut rival {
                Some(rival) => rival.consider(position, used),
                None => rival = Some(Rival { used, oldest: position, newest: position }),
            }
        }
        let rival = rival.filter(|rival| rival.used >= before)?;
        Some(if rival.used > after { rival.newest } else { rival.oldest })
    }

    /// Use of an entry's client beyond the entry. 0: no other entry shares a network, account or
    /// realm with the client. Comparable with [`use_before`](Self::use_before).
    #[must_use]
    pub fn use_beyond(&self, share: &Share) -> u64 {
        let others = |node: Node| u64::from(self.count(node).saturating_sub(share.slots));
        self.limiting(&share.nodes).map(|node| others(node) * u64::from(node.units)).sum()
    }

    /// Use of a client before a further entry.
    #[must_use]
    pub fn use_before(&self, newcomer: &Claimant<'_>) -> u64 {
        self.total_use(&newcomer.nodes(self.levels, &self.hasher), 0)
    }

    /// Use of a client before a further entry, in entries of a single address: a network with the
    /// weight of 16 addresses, and 32 entries, has the use of one address with two entries.
    #[must_use]
    pub fn entries_before(&self, newcomer: &Claimant<'_>) -> u64 {
        self.whole_use(&newcomer.nodes(self.levels, &self.hasher), 0)
    }

    /// Use of a client, rounded down to entries of a single address. IPv4 and IPv6 have different
    /// numbers of levels.
    fn whole_use(&self, nodes: &Nodes, more: u32) -> u64 {
        self.total_use(nodes, more) / u64::from(UNIT)
    }

    /// Use of a client with `more` entries: the sum of the uses of networks, account and realm,
    /// each divided by the weight of the level. [`UNIT`] is one entry of a single address. A sum
    /// separates clients of one realm or network, where the maximum would be equal.
    fn total_use(&self, nodes: &Nodes, more: u32) -> u64 {
        let used = |node: Node| u64::from(self.count(node) + more) * u64::from(node.units);
        self.limiting(nodes).map(used).sum()
    }

    fn limiting(&self, nodes: &Nodes) -> impl Iterator<Item = Node> {
        let realms_compete = self.realms_compete;
        nodes.iter().filter(move |node| node.kind != NodeKind::Realm || realms_compete)
    }

    fn count(&self, node: Node) -> u32 {
        self.counts.get(&node.key).copied().unwrap_or(0)
    }

    /// Positions of entries to compare, in ascending order: all entries of a small table, otherwise
    /// a random entry of each part.
    fn sample(&mut self, entries: usize) -> impl Iterator<Item = usize> + use<> {
        let part = if entries <= 2 * COMPARED { 1 } else { entries / COMPARED };
        let mut choice = self.choice;
        self.choice = xorshift(choice);
        (0..entries / part).map(move |number| {
            choice = xorshift(choice.rotate_left(32));
            number * part + (choice % part as u64) as usize
        })
    }
}

impl Supply {
    /// Returns true where shares apply: less than an eighth is free, or fewer than eight slots of a
    /// table with less than 64, a quarter at most.
    #[must_use]
    pub fn is_scarce(self) -> bool {
        let is_small_part = u64::from(self.free) * SCARCE < u64::from(self.capacity);
        is_small_part || self.free < FEW.min(self.capacity / 4)
    }

    /// Units of one entry at a node. More units reduce a weight that exceeds a sixteenth of the
    /// table, a quarter for a realm.
    fn units(self, node: Node) -> u32 {
        let divisor = if node.kind == NodeKind::Realm { SMALL_REALM } else { SMALL };
        let small = UNIT * divisor / self.capacity.max(divisor);
        small.max(node.units.into())
    }

    /// Largest use with which a client may still get a slot. While an eighth of the table is free,
    /// the use is unlimited. The limit is then a quarter of the table, and falls by the square of
    /// the free part. The square reserves slots for clients without entries, even when thousands of
    /// clients take full shares. A client without entries, in a network with few, gets any free
    /// slot.
    fn allowance(self) -> u64 {
        if !self.is_scarce() {
            return u64::MAX;
        }
        let (free, capacity) = (u64::from(self.free), u64::from(self.capacity));
        let square = u64::from(UNIT) * free * free * (SCARCE * SCARCE / 4) / capacity;
        square.max(2 * u64::from(UNIT))
    }
}

/// Random generator with a secret state. No client can observe an outcome.
const fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// Client with the largest use in a sample, with the positions of the oldest and newest entries.
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
