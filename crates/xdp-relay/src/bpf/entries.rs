//! Entries of the programs' table: two adjacent entries for each flow, one for each direction.
//!
//! An entry is written while no program can find it. At that time the map of keys does not contain
//! the entry, and the entry has been unused for [`REST`](crate::limits::REST). The generation of
//! the entry is 0 until the entry is published, and then a number that no entry had before. The map
//! stores the generation next to the index of the entry. A program that reads another generation in
//! the entry treats the route as withdrawn.

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use turn_types::Instant;

use super::layout::{RouteKey, RouteValue, TO_RING, UNPROVEN, entry, punt_state};
use super::shared::Shared;
use super::slots::Slots;

/// Flag in the word of the generation: packets of the entry are in the stack.
const PUNTING: u64 = 1 << 32;

/// Bits of the flow label in the word of the bucket.
const LABEL: u64 = 0xFFFF_FFFF << 32;

/// All entries, shared by all workers. Only the worker that holds a pair writes the entries of the
/// pair.
#[derive(Debug)]
pub(crate) struct Entries {
    memory: Shared,
    /// State of each entry while packets are in the stack.
    states: Shared,
    /// Time for which a proof is valid, in nanoseconds.
    proof_holds: u64,
    pairs: Slots,
    generations: AtomicU32,
}

/// Pair of adjacent entries of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(u32);

impl Pair {
    /// Returns the index of the entry for packets to the peer.
    pub(crate) const fn to_peer(self) -> u32 {
        2 * self.0
    }

    /// Returns the index of the entry for packets to the client.
    pub(crate) const fn to_client(self) -> u32 {
        2 * self.0 + 1
    }
}

impl Entries {
    /// Returns the number of words of the array of entries, for a number of pairs.
    pub(crate) const fn words(pairs: u32) -> usize {
        2 * pairs as usize * entry::WORDS
    }

    /// Returns the number of words of the array of states, for a number of pairs.
    pub(crate) const fn state_words(pairs: u32) -> usize {
        2 * pairs as usize * punt_state::WORDS
    }

    pub(crate) fn new(memory: Shared, states: Shared, pairs: u32, proof_holds: u64) -> Self {
        let generations = AtomicU32::new(0);
        Self { memory, states, proof_holds, pairs: Slots::new(pairs), generations }
    }

    /// Takes a pair. Returns `None` if no pair is free.
    pub(crate) fn take(&self, now: Instant) -> Option<Pair> {
        self.pairs.take(now).map(Pair)
    }

    /// Withdraws both entries, and frees the pair. The caller must have removed the keys from the
    /// map.
    pub(crate) fn put_back(&self, now: Instant, pair: Pair) {
        for index in [pair.to_peer(), pair.to_client()] {
            self.word(index, entry::GENERATION).store(0, Relaxed);
        }
        // The fence orders these stores before the writes for a later flow. A program that reads
        // such writes finds generation 0 or that of the later flow.
        fence(Release);
        self.pairs.put_back(now, pair.0);
    }

    /// Writes an entry of a newly taken pair. Returns the value for the key in the map.
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
        // Generation 0 means none. After about four billion routes the numbers repeat.
        let generation = self.generations.fetch_add(1, Relaxed) % (u32::MAX - 1) + 1;
        // `Release` makes all other words visible before the generation. The word also clears
        // [`PUNTING`], since no packet of the entry has been punted yet.
        self.word(index, entry::GENERATION).store(u64::from(generation), Release);
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Updates the fields that may change while programs read the entry. Each field is one word
    /// with an independent meaning. The flow label is not changed, since it was copied from the
    /// host's packets.
    pub(crate) fn refresh(&self, index: u32, value: &RouteValue) {
        self.word(index, entry::UNTIL).store(value.until, Relaxed);
        // The flow cookie of a ring route never changes during the life of the entry.
        if value.flags & TO_RING == 0 {
            let bound = |word: u64| Some(word & LABEL | value.bound & !LABEL);
            // The closure always returns a value.
            let _ = self.word(index, entry::BOUND).fetch_update(Relaxed, Relaxed, bound);
        }
    }

    /// Records that packets reached the worker through the stack. The tap does the equivalent for
    /// packets that leave (`note_all` of bpf/evidence.h).
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

    /// Starts a sequence. From now on the programs relay, while packets that were not counted may
    /// be in the stack.
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
        // The programs count after this write. They clear the flag by a write of this half of the
        // word.
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

    /// Returns time and next hop of the last packet that left through the stack, or zeros if there
    /// was none.
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
