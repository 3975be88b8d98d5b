//! Waiting work, sorted by the recent use of clients.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Values;
use core::time::Duration;

use ahash::RandomState;
use turn_types::Instant;

use crate::claimant::Claimant;
use crate::levels::{LEVELS_MAX, Levels};
use crate::meter::Meter;

/// Longest time for which past use delays a client.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A bounded queue of entries.
///
/// Each entry of a client delays later entries of the client by a fixed time, divided by the weight
/// of network, account and realm. The entry with the earliest time comes out first. The time only
/// sorts entries: a short queue is served immediately. Entries of one client keep the order of
/// arrival.
#[derive(Debug)]
pub struct FairQueue<T> {
    entries: BTreeMap<Turn, T>,
    capacity: usize,
    delay: Duration,
    /// Recent use up to which a client precedes clients with more.
    grace: Duration,
    meter: Meter,
    /// Clock of past use: the time of the last removed entry, or the time of an arrival in an
    /// empty queue. While entries wait, past use drains by service, however slow.
    clock: Instant,
    next_number: u64,
}

/// Sort key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    at: Instant,
    /// Past use at the time of arrival: with the same time, the client with less use is first.
    backlog: Duration,
    number: u64,
}

impl<T> FairQueue<T> {
    /// An empty queue. An entry of a single address delays the next entry of the address by
    /// `delay`. The hasher has a secret seed.
    #[must_use]
    pub fn new(
        levels: &'static Levels,
        capacity: usize,
        delay: Duration,
        hasher: RandomState,
    ) -> Self {
        let meter = Meter::new(levels, hasher);
        Self {
            entries: BTreeMap::new(),
            capacity,
            delay,
            grace: Duration::ZERO,
            meter,
            clock: Instant::ZERO,
            next_number: 0,
        }
    }

    /// Delays entries by the recent use beyond `grace`. Clients with less precede the others, by
    /// their use.
    ///
    /// Where many clients have the same use, the clock stands until each is served. Without grace a
    /// client with one message more would wait for them all.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true for an empty queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry of a client. Returns the entry that was dropped for lack of space: the last
    /// entry, perhaps the new entry itself.
    pub fn push(&mut self, now: Instant, claimant: &Claimant<'_>, entry: T) -> Option<T> {
        self.insert(now, claimant, entry);
        if !self.is_crowded() {
            return None;
        }
        self.entries.pop_last().map(|(_, dropped)| dropped)
    }

    /// Adds an entry, even beyond the capacity.
    pub(crate) fn insert(&mut self, now: Instant, claimant: &Claimant<'_>, entry: T) -> Turn {
        // A part of the sum: the sum falls faster than time passes, and a later entry of a client
        // could overtake an earlier entry.
        self.advance(now);
        let backlog = self.meter.total_backlog(self.clock, claimant) / (LEVELS_MAX as u32 + 1);
        self.add_use(claimant, self.delay);
        let at = self.clock + backlog.saturating_sub(self.grace);
        let turn = Turn { at, backlog, number: self.next_number };
        self.next_number += 1;
        self.entries.insert(turn, entry);
        turn
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.entries.len() > self.capacity
    }

    /// Delays later entries of a client, as earlier entries with `delay` in all would.
    pub fn charge(&mut self, now: Instant, claimant: &Claimant<'_>, delay: Duration) {
        self.advance(now);
        self.add_use(claimant, delay);
    }

    fn advance(&mut self, now: Instant) {
        if self.entries.is_empty() {
            self.clock = self.clock.max(now);
        }
    }

    fn add_use(&mut self, claimant: &Claimant<'_>, delay: Duration) {
        if self.meter.backlog(self.clock, claimant) < REMEMBERED {
            self.meter.charge(self.clock, claimant, delay);
        }
    }

    /// Removes the first entry.
    pub fn pop(&mut self) -> Option<T> {
        let (turn, entry) = self.entries.pop_first()?;
        self.clock = self.clock.max(turn.at);
        Some(entry)
    }

    /// Removes the first of the first `limit` entries for which `predicate` returns true.
    ///
    /// Only the first entry of all sets the clock. With the time of a later entry, skipped entries
    /// would precede newcomers.
    pub fn pop_where(&mut self, limit: usize, predicate: impl FnMut(&T) -> bool) -> Option<T> {
        let turn = self.find(limit, predicate)?;
        self.remove(turn)
    }

    pub(crate) fn find(&self, limit: usize, mut predicate: impl FnMut(&T) -> bool) -> Option<Turn> {
        let found = self.entries.iter().take(limit).find(|(_, entry)| predicate(entry));
        found.map(|(turn, _)| *turn)
    }

    /// Removes an entry. Only the first of all sets the clock.
    pub(crate) fn remove(&mut self, turn: Turn) -> Option<T> {
        if self.first_turn() == Some(turn) {
            return self.pop();
        }
        self.entries.remove(&turn)
    }

    pub(crate) fn get(&self, turn: Turn) -> Option<&T> {
        self.entries.get(&turn)
    }

    pub(crate) fn first_turn(&self) -> Option<Turn> {
        self.entries.first_key_value().map(|(turn, _)| *turn)
    }

    pub(crate) fn last_turn(&self) -> Option<Turn> {
        self.entries.last_key_value().map(|(turn, _)| *turn)
    }

    /// Removes the entries for which `predicate` returns false. The use of their clients remains.
    pub fn retain(&mut self, mut predicate: impl FnMut(&T) -> bool) {
        self.entries.retain(|_, entry| predicate(entry));
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.entries.first_key_value().map(|(_, entry)| entry)
    }

    /// Entries, sorted.
    pub fn iter(&self) -> Values<'_, Turn, T> {
        self.entries.values()
    }

    /// Mutable entries, sorted.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.values_mut()
    }
}

#[cfg(test)]
mod tests;
