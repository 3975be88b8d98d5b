//! Entries of the programs' table: two adjacent ones for each flow, one for each direction.
//!
//! An entry is written while no program can find it: it is not in the map of keys, and has been unused for
//! [`REST`](crate::limits::REST). Its generation is 0 meanwhile, and then a number that no entry had before.
//! The map holds the generation beside the index of the entry; a program that reads another generation in the
//! entry treats the route as withdrawn.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release, fence};

use turn_types::Instant;

use super::layout::{RouteKey, RouteValue, entry};
use super::shared::Shared;
use super::slots::Slots;

/// All entries, shared by all workers. One worker writes an entry while it holds its pair.
#[derive(Debug)]
pub(crate) struct Entries {
    memory: Shared,
    pairs: Slots,
    generations: AtomicU32,
}

/// Two neighbouring entries of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(u32);

impl Pair {
    /// The entry of packets to the peer.
    pub(crate) const fn to_peer(self) -> u32 {
        2 * self.0
    }

    /// The entry of packets to the client.
    pub(crate) const fn to_client(self) -> u32 {
        2 * self.0 + 1
    }
}

impl Entries {
    /// Words of the array for a number of pairs.
    pub(crate) const fn words(pairs: u32) -> usize {
        2 * pairs as usize * entry::WORDS
    }

    pub(crate) fn new(memory: Shared, pairs: u32) -> Self {
        Self { memory, pairs: Slots::new(pairs), generations: AtomicU32::new(0) }
    }

    /// Takes a pair; `None` when none is free.
    pub(crate) fn take(&self, now: Instant) -> Option<Pair> {
        self.pairs.take(now).map(Pair)
    }

    /// Withdraws both entries, and frees the pair. The caller has removed their keys from the map.
    pub(crate) fn put_back(&self, now: Instant, pair: Pair) {
        for index in [pair.to_peer(), pair.to_client()] {
            self.word(index, entry::GENERATION).store(0, Relaxed);
        }
        // No program that reads an entry later finds it whole.
        fence(Release);
        self.pairs.put_back(now, pair.0);
    }

    /// Writes an entry of a newly taken pair; returns the value for its key in the map.
    pub(crate) fn publish(&self, index: u32, key: RouteKey, value: RouteValue) -> u64 {
        for (at, word) in value.words().into_iter().enumerate() {
            self.word(index, at).store(word, Relaxed);
        }
        for (at, word) in key.words().into_iter().enumerate() {
            self.word(index, entry::KEY + at).store(word, Relaxed);
        }
        for word in [entry::PROVEN, entry::NEXT_HOP] {
            self.word(index, word).store(0, Relaxed);
        }
        // 0 is none; after four thousand million routes numbers come round.
        let generation = self.generations.fetch_add(1, Relaxed) % (u32::MAX - 1) + 1;
        // The rest is there before the generation is. Nothing was left to the stack yet.
        self.word(index, entry::GENERATION).store(u64::from(generation), Release);
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Updates the fields that may change while programs read the entry: each is one word with a meaning of its
    /// own.
    pub(crate) fn refresh(&self, index: u32, value: &RouteValue) {
        self.word(index, entry::UNTIL).store(value.until, Relaxed);
        self.word(index, entry::BOUND).store(value.bound, Relaxed);
    }

    /// Notes that a packet came to its worker by the system's stack.
    pub(crate) fn prove(&self, index: u32, now: Instant) {
        self.word(index, entry::PROVEN).store(now.as_nanos(), Relaxed);
    }

    /// Time and next hop of the last packet that left by the stack; zeros for none.
    pub(crate) fn proof(&self, index: u32) -> (u64, u64) {
        let read = |word| self.word(index, word).load(Relaxed);
        (read(entry::PROVEN), read(entry::NEXT_HOP))
    }

    fn word(&self, index: u32, word: usize) -> &std::sync::atomic::AtomicU64 {
        &self.memory.words()[index as usize * entry::WORDS + word]
    }
}
