//! Waiting work of several realms, sorted by the recent use of clients.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use ahash::RandomState;
use turn_types::Instant;

use crate::claimant::Claimant;
use crate::levels::Levels;
use crate::queue::{FairQueue, Turn};

/// A [`FairQueue`] that can be searched by realm, however many entries of other realms come first.
///
/// The realm of an entry has no part in the order: clients of the only realm would all have its
/// use.
#[derive(Debug)]
pub struct RealmQueue<T> {
    queue: FairQueue<Entry<T>>,
    /// Entries of each realm that has any, sorted.
    realms: BTreeMap<u64, BTreeSet<Turn>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry<T> {
    realm: u64,
    value: T,
}

impl<T> RealmQueue<T> {
    /// An empty queue, as [`FairQueue::new`] makes it.
    #[must_use]
    pub fn new(
        levels: &'static Levels,
        capacity: usize,
        delay: Duration,
        hasher: RandomState,
    ) -> Self {
        let queue = FairQueue::new(levels, capacity, delay, hasher.clone());
        Self { queue, realms: BTreeMap::new(), hasher }
    }

    /// Adds an entry of a client. Returns the entry that was dropped for lack of space: the last
    /// entry, of the realm with more than half of the entries if there is one.
    pub fn push(
        &mut self,
        now: Instant,
        realm: &str,
        claimant: &Claimant<'_>,
        value: T,
    ) -> Option<T> {
        let realm = self.hasher.hash_one(realm);
        let turn = self.queue.insert(now, claimant, Entry { realm, value });
        self.realms.entry(realm).or_default().insert(turn);
        if !self.queue.is_crowded() {
            return None;
        }
        let half = self.queue.len() / 2;
        let last = match self.realms.values().find(|turns| turns.len() > half) {
            Some(turns) => turns.last().copied(),
            None => self.queue.last_turn(),
        };
        last.and_then(|turn| self.remove(turn))
    }

    /// Delays later entries of a client, as earlier entries with `delay` in all would.
    pub fn charge(&mut self, now: Instant, claimant: &Claimant<'_>, delay: Duration) {
        self.queue.charge(now, claimant, delay);
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.queue.first().map(|entry| &entry.value)
    }

    /// Removes the first entry.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.first_turn().and_then(|turn| self.remove(turn))
    }

    /// Removes the first of the first `limit` entries for which `predicate` returns true.
    pub fn pop_where(&mut self, limit: usize, mut predicate: impl FnMut(&T) -> bool) -> Option<T> {
        let turn = self.queue.find(limit, |entry| predicate(&entry.value))?;
        self.remove(turn)
    }

    /// The same of the first `limit` entries of each realm.
    pub fn pop_in_realms(
        &mut self,
        limit: usize,
        mut predicate: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        let Self { queue, realms, .. } = self;
        let mut is_wanted =
            |turn: &Turn| queue.get(*turn).is_some_and(|entry| predicate(&entry.value));
        let found = realms
            .values()
            .filter_map(|turns| turns.iter().take(limit).find(|turn| is_wanted(turn)));
        let turn = found.min().copied()?;
        self.remove(turn)
    }

    fn remove(&mut self, turn: Turn) -> Option<T> {
        let Entry { realm, value } = self.queue.remove(turn)?;
        if let Some(turns) = self.realms.get_mut(&realm) {
            turns.remove(&turn);
            if turns.is_empty() {
                self.realms.remove(&realm);
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::levels::USERS;

    fn queue(capacity: usize) -> RealmQueue<(&'static str, u32)> {
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        RealmQueue::new(&USERS, capacity, Duration::from_millis(100), hasher)
    }

    fn push(
        queue: &mut RealmQueue<(&'static str, u32)>,
        realm: &'static str,
        number: u32,
    ) -> Option<(&'static str, u32)> {
        let [_, _, high, low] = number.to_be_bytes();
        let client = Claimant::at([100 + high, low, 2, 1].into());
        queue.push(Instant::ZERO, realm, &client, (realm, number))
    }

    #[test]
    fn an_entry_of_a_realm_is_found_behind_many_of_another() {
        let mut queue = queue(512);
        for number in 0..400 {
            assert_eq!(push(&mut queue, "b", number), None);
        }
        for number in 400..402 {
            assert_eq!(push(&mut queue, "r", number), None);
        }
        assert_eq!(queue.pop_where(64, |(realm, _)| *realm == "r"), None);
        let mut pop = || queue.pop_in_realms(8, |(realm, _)| *realm == "r");
        assert_eq!([(); 3].map(|()| pop()), [Some(("r", 400)), Some(("r", 401)), None]);
        // The earliest of all realms is first.
        assert_eq!(push(&mut queue, "r", 402), None);
        assert_eq!(queue.pop_in_realms(8, |_| true), Some(("b", 0)));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!((rest.len(), queue.realms.len()), (400, 0));
    }

    #[test]
    fn a_realm_with_most_entries_makes_room() {
        let mut queue = queue(100);
        for number in 0..100 {
            assert_eq!(push(&mut queue, "b", number), None);
        }
        for number in 100..150 {
            assert_eq!(push(&mut queue, "r", number).map(|(realm, _)| realm), Some("b"));
        }
        // Neither has more than half of them.
        assert_eq!(push(&mut queue, "c", 150), Some(("c", 150)));
        assert_eq!(queue.queue.len(), 100);
    }
}
