//! One timer per key, in a hashed wheel (Varghese and Lauck): arming, moving and cancelling cost the
//! same however many there are, and memory is bounded by the number of keys.
//!
//! The wheel is coarse: a timer fires at the first tick not before its deadline. Whoever needs the
//! exact moment compares with the deadline itself; the wheel only reclaims.

use alloc::vec;
use alloc::vec::Vec;

use turn_types::Instant;

use crate::limits::{TIMER_BUCKETS, TIMER_TICK};

/// No neighbour in a bucket's list.
const NONE: u32 = u32::MAX;

const TICK_NANOS: u64 = TIMER_TICK.as_nanos() as u64;

/// Words of the bitmap of buckets in use.
const WORDS: usize = TIMER_BUCKETS / 64;

#[derive(Clone, Copy, Debug)]
struct Node {
    tick: u64,
    armed: bool,
    prev: u32,
    next: u32,
}

/// Timers for the keys 0.., which are expected to be dense (slots of a slab).
#[derive(Debug)]
pub(crate) struct TimerWheel {
    nodes: Vec<Node>,
    heads: Vec<u32>,
    occupied: [u64; WORDS],
    /// The first tick that has not been taken completely.
    cursor: u64,
    armed: usize,
}

impl TimerWheel {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            heads: vec![NONE; TIMER_BUCKETS],
            occupied: [0; WORDS],
            cursor: 0,
            armed: 0,
        }
    }

    /// Arms the key's timer, or moves it.
    pub(crate) fn set(&mut self, key: u32, deadline: Instant) {
        self.cancel(key);
        let at = key as usize;
        if at >= self.nodes.len() {
            let idle = Node { tick: 0, armed: false, prev: NONE, next: NONE };
            self.nodes.resize(at + 1, idle);
        }
        let tick = deadline.as_nanos().div_ceil(TICK_NANOS).max(self.cursor);
        let bucket = bucket_of(tick);
        let next = self.heads[bucket];
        self.nodes[at] = Node { tick, armed: true, prev: NONE, next };
        if next != NONE {
            self.nodes[next as usize].prev = key;
        }
        self.heads[bucket] = key;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.armed += 1;
    }

    /// Disarms the key's timer, if it is armed.
    pub(crate) fn cancel(&mut self, key: u32) {
        let Some(node) = self.nodes.get(key as usize).copied().filter(|node| node.armed) else {
            return;
        };
        let bucket = bucket_of(node.tick);
        if node.prev == NONE {
            self.heads[bucket] = node.next;
        } else {
            self.nodes[node.prev as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].prev = node.prev;
        }
        if self.heads[bucket] == NONE {
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        }
        self.nodes[key as usize].armed = false;
        self.armed -= 1;
    }

    /// Takes one timer that is due, if there is one. Call it until it says `None`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let now_tick = now.as_nanos() / TICK_NANOS;
        // After a long pause each bucket still needs to be seen only once.
        let mut left = TIMER_BUCKETS;
        while self.cursor <= now_tick && self.armed > 0 && left > 0 {
            let ahead = self.buckets_to_next_occupied();
            if self.cursor + ahead as u64 > now_tick {
                break;
            }
            self.cursor += ahead as u64;
            left = left.saturating_sub(ahead);
            if let Some(key) = self.first_due(bucket_of(self.cursor), now_tick) {
                self.cancel(key);
                return Some(key);
            }
            self.cursor += 1;
            left = left.saturating_sub(1);
        }
        self.cursor = self.cursor.max(now_tick + 1);
        None
    }

    /// When to look again: not later than the earliest timer, rounded up to a tick.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.armed == 0 {
            return None;
        }
        let tick = self.cursor + self.buckets_to_next_occupied() as u64;
        Some(Instant::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    fn first_due(&self, bucket: usize, now_tick: u64) -> Option<u32> {
        let mut key = self.heads[bucket];
        while key != NONE {
            let node = self.nodes[key as usize];
            if node.tick <= now_tick {
                return Some(key);
            }
            key = node.next;
        }
        None
    }

    /// Buckets from the cursor's own to the first one in use; 0 when its own is, or when none is.
    fn buckets_to_next_occupied(&self) -> usize {
        let start = bucket_of(self.cursor);
        for step in 0..=WORDS {
            let word = (start / 64 + step) % WORDS;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                return (bucket + TIMER_BUCKETS - start) % TIMER_BUCKETS;
            }
        }
        0
    }
}

const fn bucket_of(tick: u64) -> usize {
    (tick % TIMER_BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn due(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
        let mut keys: Vec<u32> = core::iter::from_fn(|| wheel.pop(now)).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn fires_once_not_early_and_at_the_latest_one_tick_late() {
        let mut wheel = TimerWheel::new();
        wheel.set(3, at(1500));
        assert_eq!(due(&mut wheel, at(1499)), [0u32; 0]);
        assert!(wheel.next().unwrap() >= at(1500));
        assert!(wheel.next().unwrap() <= at(1500) + TIMER_TICK);
        assert_eq!(due(&mut wheel, at(1500) + TIMER_TICK), [3]);
        assert_eq!(due(&mut wheel, at(1_000_000)), [0u32; 0]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_look() {
        let mut wheel = TimerWheel::new();
        assert_eq!(due(&mut wheel, at(50_000)), [0u32; 0]);
        wheel.set(0, at(10));
        let next = wheel.next().unwrap();
        assert_eq!(due(&mut wheel, next), [0]);
    }

    proptest! {
        /// Against a sorted map: nothing early, nothing forgotten, nothing twice, also when time
        /// jumps by more than the wheel's span.
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0u32..40, 0u64..12_000_000, 0u8..4, 0u64..6_000_000), 1..200)
        ) {
            let mut wheel = TimerWheel::new();
            let mut model: BTreeMap<u32, Instant> = BTreeMap::new();
            let mut now = 0;
            for (key, ahead, action, pause) in steps {
                match action {
                    0 | 1 => {
                        wheel.set(key, at(now + ahead));
                        model.insert(key, at(now + ahead));
                    }
                    2 => {
                        wheel.cancel(key);
                        model.remove(&key);
                    }
                    _ => now += pause,
                }
                for key in due(&mut wheel, at(now)) {
                    let deadline = model.remove(&key);
                    prop_assert!(deadline.is_some_and(|d| d <= at(now)), "{key} fired early or twice");
                }
                for (key, deadline) in &model {
                    prop_assert!(*deadline + TIMER_TICK > at(now), "{key} is late");
                }
                prop_assert_eq!(wheel.next().is_some(), !model.is_empty());
                if let (Some(next), Some(first)) = (wheel.next(), model.values().min()) {
                    prop_assert!(next <= *first + TIMER_TICK && next > at(now));
                }
            }
        }
    }
}
