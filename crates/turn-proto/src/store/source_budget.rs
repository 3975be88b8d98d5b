//! Token buckets for sources that have proved nothing, or little: answers to unauthenticated
//! requests, failed verifications, handshakes. One table of a fixed size for each purpose, whatever
//! is sent.

use alloc::boxed::Box;
use alloc::vec;
use core::hash::Hash;
use core::time::Duration;

use ahash::RandomState;
use turn_types::{Instant, Prefix};

use crate::limits::SOURCE_BUCKETS;

/// A bucket for each source of packets; sources that collide share one. Which bucket a source has
/// depends on a secret seed, so that no source can choose another to share with.
#[derive(Debug)]
pub struct SourceBudget {
    /// The time when each bucket will be full again (a leaky bucket kept as one time: GCRA).
    full_at: Box<[Instant]>,
    hasher: RandomState,
}

impl SourceBudget {
    /// [`SOURCE_BUCKETS`] full buckets.
    #[must_use]
    pub fn new(hasher: RandomState) -> Self {
        Self::with_buckets(hasher, SOURCE_BUCKETS)
    }

    /// So many full buckets, at least one.
    #[must_use]
    pub fn with_buckets(hasher: RandomState, buckets: usize) -> Self {
        Self { full_at: vec![Instant::ZERO; buckets.max(1)].into_boxed_slice(), hasher }
    }

    /// Takes one out of the budget of `per_second` for each source, of which a second's worth may
    /// be spent at once; 0 is unlimited. False when the budget is spent.
    pub fn take(&mut self, now: Instant, source: Prefix, per_second: u32) -> bool {
        const BURST: Duration = Duration::from_secs(1);
        per_second == 0 || self.spend(now, source, BURST / per_second, BURST)
    }

    /// Returns true if a bucket that holds `burst` is empty.
    #[must_use]
    pub fn is_spent(&self, now: Instant, source: impl Hash, burst: Duration) -> bool {
        self.full_at[self.bucket(source)].saturating_since(now) >= burst
    }

    /// Takes `cost` out of a bucket even if it holds less: the cost of work already done.
    pub fn draw(&mut self, now: Instant, source: impl Hash, cost: Duration) {
        let bucket = self.bucket(source);
        let full_at = &mut self.full_at[bucket];
        *full_at = (*full_at).max(now) + cost;
    }

    /// Takes `cost` out of a bucket that holds `burst` and refills in as much time. False when it
    /// holds less: nothing is taken then.
    pub fn spend(
        &mut self,
        now: Instant,
        source: impl Hash,
        cost: Duration,
        burst: Duration,
    ) -> bool {
        let bucket = self.bucket(source);
        let full_at = &mut self.full_at[bucket];
        let after = (*full_at).max(now) + cost;
        if after.saturating_since(now) > burst {
            return false;
        }
        *full_at = after;
        true
    }

    fn bucket(&self, source: impl Hash) -> usize {
        bucket(&self.hasher, self.full_at.len(), source)
    }
}

fn bucket(hasher: &RandomState, buckets: usize, source: impl Hash) -> usize {
    // The modulus keeps it within the table, whose length fits.
    (hasher.hash_one(source) % buckets as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use std::vec::Vec;

    fn budget() -> SourceBudget {
        SourceBudget::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn network(text: &str) -> Prefix {
        Prefix::network(text.parse().unwrap())
    }

    #[test]
    fn a_prefix_gets_its_rate_and_a_second_of_burst() {
        let mut budget = budget();
        let mut granted = |millis| budget.take(at(millis), network("198.51.100.7"), 10);
        assert_eq!((0..50).filter(|_| granted(5000)).count(), 10);
        assert!(!granted(5099));
        assert!(granted(5100));
        assert!(!granted(5100));
        assert_eq!((0..50).filter(|_| granted(5600)).count(), 5);
        assert_eq!(
            (0..50).filter(|_| granted(60_000)).count(),
            10,
            "no more than a burst is saved up"
        );
        // Over ten seconds of flooding every millisecond: the rate, and the burst once.
        assert_eq!((70_000..80_000).filter(|millis| granted(*millis)).count(), 109);
    }

    #[test]
    fn a_prefix_shares_and_others_do_not() {
        let mut budget = budget();
        let mut spend =
            |text: &str| (0..100).filter(|_| budget.take(at(0), network(text), 5)).count();
        assert_eq!(spend("192.0.2.1"), 5);
        assert_eq!(spend("192.0.2.254"), 0, "same /24");
        assert_eq!(spend("::ffff:192.0.2.9"), 0, "same /24 in its IPv6 form");
        assert_eq!(spend("192.0.3.1"), 5, "next /24");
        assert_eq!(spend("2001:db8:1::1"), 5);
        assert_eq!(spend("2001:db8:1:ffff::1"), 0, "same /48");
        assert_eq!(spend("2001:db8:2::1"), 5, "next /48");
    }

    #[test]
    fn zero_is_unlimited() {
        let mut budget = budget();
        assert!((0..100_000).all(|_| budget.take(at(0), network("192.0.2.1"), 0)));
    }

    #[test]
    fn a_new_rate_counts_at_once_and_extreme_rates_work() {
        let mut budget = budget();
        assert_eq!((0..100).filter(|_| budget.take(at(0), network("192.0.2.1"), 1)).count(), 1);
        assert_eq!(
            (0..100).filter(|_| budget.take(at(1000), network("192.0.2.1"), 50)).count(),
            50
        );
        assert!((0..100).all(|_| budget.take(at(1000), network("203.0.113.1"), u32::MAX)));
    }

    #[test]
    fn prefixes_spread_over_the_buckets_and_the_seed_decides_where() {
        let buckets = |hasher: &RandomState| -> Vec<usize> {
            (0..1000u32)
                .map(|i| {
                    bucket(hasher, SOURCE_BUCKETS, Prefix::network(IpAddr::V4((i << 8).into())))
                })
                .collect()
        };
        let one = buckets(&RandomState::with_seeds(1, 2, 3, 4));
        let mut distinct = one.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // 1000 balls in 4096 bins leave about 887 bins occupied.
        assert!(distinct.len() > 800, "{} buckets", distinct.len());
        assert_ne!(one, buckets(&RandomState::with_seeds(5, 6, 7, 8)));
    }
}
