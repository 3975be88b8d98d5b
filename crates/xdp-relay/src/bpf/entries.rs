//! Entries of the programs' table: two adjacent ones for each flow, one for each direction.
//!
//! An entry is written while no program can find it: it is not in the map of keys, and has been
//! unused for [`REST`](crate::limits::REST). Its generation is 0 meanwhile, and then a number that
//! no entry had before. The map holds the generation beside the index of the entry; a program that
//! reads another generation in the entry treats the route as withdrawn.

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use turn_types::Instant;

use super::layout::{RouteKey, RouteValue, TO_RING, UNPROVEN, entry, punt_state};
use super::shared::Shared;
use super::slots::Slots;

/// Packets of an entry are in the stack, in the word of its generation.
const PUNTING: u64 = 1 << 32;

/// The flow label, in the word of the bucket.
const LABEL: u64 = 0xFFFF_FFFF << 32;

/// All entries, shared by all workers. One worker writes an entry while it holds its pair.
#[derive(Debug)]
pub(crate) struct Entries {
    memory: Shared,
    /// State of each entry while packets are in the stack.
    states: Shared,
    /// Nanoseconds for which a proof is valid.
    proof_holds: u64,
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

    /// Words of the array of states.
    pub(crate) const fn state_words(pairs: u32) -> usize {
        2 * pairs as usize * punt_state::WORDS
    }

    pub(crate) fn new(memory: Shared, states: Shared, pairs: u32, proof_holds: u64) -> Self {
        let generations = AtomicU32::new(0);
        Self { memory, states, proof_holds, pairs: Slots::new(pairs), generations }
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
        for word in iter::once(punt_state::ALTERED).chain(punt_state::PROBES..punt_state::WORDS) {
            self.state(index, word).store(0, Relaxed);
        }
        // 0 is none; after four thousand million routes numbers come round.
        let generation = self.generations.fetch_add(1, Relaxed) % (u32::MAX - 1) + 1;
        // The rest is there before the generation is. Nothing was left to the stack yet.
        self.word(index, entry::GENERATION).store(u64::from(generation), Release);
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Updates the fields that may change while programs read the entry: each is one word with a
    /// meaning of its own. The flow label remains that of the host's packets.
    pub(crate) fn refresh(&self, index: u32, value: &RouteValue) {
        self.word(index, entry::UNTIL).store(value.until, Relaxed);
        // The cookie of a ring is the same for as long as its entry.
        if value.flags & TO_RING == 0 {
            let bound = |word: u64| Some(word & LABEL | value.bound & !LABEL);
            // The closure always returns a value.
            let _ = self.word(index, entry::BOUND).fetch_update(Relaxed, Relaxed, bound);
        }
    }

    /// Notes that packets reached their worker by the system's stack, as the program that sees
    /// packets leave does (`note_all` of bpf/evidence.h).
    pub(crate) fn prove(&self, index: u32, now: Instant, packets: u32) {
        let (now, word) = (now.as_nanos(), |at| self.word(index, at));
        let proven = word(entry::PROVEN).load(Relaxed);
        let is_new = proven == 0 || now.saturating_sub(proven) >= self.proof_holds;
        if self.proof_holds > 0 && is_new {
            self.start(index, now);
        } else if word(entry::GENERATION).load(Relaxed) >= PUNTING {
            self.state(index, punt_state::LEFT_AT).store(now, Relaxed);
            self.note_left(index, packets);
        }
        word(entry::PROVEN).store(now, Relaxed);
    }

    /// Starts a sequence: the programs relay from here on, and there may be packets in the stack
    /// that were not counted.
    fn start(&self, index: u32, now: u64) {
        let settles = 1 << 48 | u64::from(UNPROVEN) << 32;
        for (at, value) in [
            (punt_state::FIRST, now),
            (punt_state::LAST, now),
            (punt_state::NUMBERS, 0),
            (punt_state::LOWEST, 0),
            (punt_state::START, settles),
            (punt_state::LEFT_AT, now),
        ] {
            self.state(index, at).store(value, Relaxed);
        }
        // The programs count from it on. They clear it by a write of its half.
        self.word(index, entry::GENERATION).fetch_or(PUNTING, Release);
    }

    fn note_left(&self, index: u32, packets: u32) {
        let more = u64::from(packets) << 32;
        let numbers = self.state(index, punt_state::NUMBERS).fetch_add(more, Relaxed);
        let numbers = numbers.wrapping_add(more);
        let inside = (numbers as u32).wrapping_sub((numbers >> 32) as u32) as i32;
        let lowest = self.state(index, punt_state::LOWEST);
        let before = lowest.load(Relaxed);
        if inside < before as i32 {
            let due = before >> 32 << 32;
            lowest.store(due | u64::from(inside as u32), Relaxed);
        }
    }

    /// Time and next hop of the last packet that left by the stack; zeros for none.
    pub(crate) fn proof(&self, index: u32) -> (u64, u64) {
        let read = |word| self.word(index, word).load(Relaxed);
        (read(entry::PROVEN), read(entry::NEXT_HOP))
    }

    fn word(&self, index: u32, word: usize) -> &AtomicU64 {
        &self.memory.words()[index as usize * entry::WORDS + word]
    }

    fn state(&self, index: u32, word: usize) -> &AtomicU64 {
        &self.states.words()[index as usize * punt_state::WORDS + word]
    }
}
