//! A bound on what strangers can make the server say: answers to unauthenticated requests, per prefix
//! of source addresses. Who forges the source of a request turns our answer on somebody else; what one
//! network receives of that stays within the budget.

use alloc::boxed::Box;
use alloc::vec;
use core::net::IpAddr;
use core::time::Duration;

use ahash::RandomState;
use turn_types::Instant;

use crate::limits::STRANGER_BUCKETS;

/// How much of the budget may be spent at once: a second's worth, so that the clients behind one NAT
/// that come back together after an outage are served.
const BURST: Duration = Duration::from_secs(1);

/// Buckets of answers, one for many prefixes. Where a prefix belongs depends on a secret seed, so nobody
/// can choose whom to share a bucket with.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// When each bucket will be full again (a leaky bucket kept as one time: GCRA).
    full_at: Box<[Instant]>,
    hasher: RandomState,
}

impl Strangers {
    /// Full buckets.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { full_at: vec![Instant::ZERO; STRANGER_BUCKETS].into_boxed_slice(), hasher }
    }

    /// Takes one answer to `ip` out of the budget of `per_second` answers per second and prefix; 0 is
    /// unlimited. False when the budget is spent.
    pub(crate) fn take(&mut self, now: Instant, ip: IpAddr, per_second: u32) -> bool {
        if per_second == 0 {
            return true;
        }
        let cost = BURST / per_second;
        let full_at = &mut self.full_at[bucket(&self.hasher, ip)];
        let after = (*full_at).max(now) + cost;
        if after.saturating_since(now) > BURST {
            return false;
        }
        *full_at = after;
        true
    }
}

/// The bucket of an address's prefix.
fn bucket(hasher: &RandomState, ip: IpAddr) -> usize {
    // The modulus keeps it within the table, whose length fits.
    (hasher.hash_one(prefix(ip)) % STRANGER_BUCKETS as u64) as usize
}

/// The /24 of an IPv4 address or the /48 of an IPv6 address, and which of both.
fn prefix(ip: IpAddr) -> (bool, u64) {
    match ip.to_canonical() {
        IpAddr::V4(v4) => (true, u64::from(v4.to_bits() >> 8)),
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            (false, u64::from(a) << 32 | u64::from(b) << 16 | u64::from(c))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn strangers() -> Strangers {
        Strangers::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_gets_its_rate_and_a_second_of_burst() {
        let mut strangers = strangers();
        let mut granted = |millis| strangers.take(at(millis), ip("198.51.100.7"), 10);
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
        let mut strangers = strangers();
        let mut spend =
            |text: &str| (0..100).filter(|_| strangers.take(at(0), ip(text), 5)).count();
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
        let mut strangers = strangers();
        assert!((0..100_000).all(|_| strangers.take(at(0), ip("192.0.2.1"), 0)));
    }

    #[test]
    fn a_new_rate_counts_at_once_and_extreme_rates_work() {
        let mut strangers = strangers();
        assert_eq!((0..100).filter(|_| strangers.take(at(0), ip("192.0.2.1"), 1)).count(), 1);
        assert_eq!((0..100).filter(|_| strangers.take(at(1000), ip("192.0.2.1"), 50)).count(), 50);
        assert!((0..100).all(|_| strangers.take(at(1000), ip("203.0.113.1"), u32::MAX)));
    }

    #[test]
    fn prefixes_spread_over_the_buckets_and_the_seed_decides_where() {
        let buckets = |hasher: &RandomState| -> Vec<usize> {
            (0..1000u32).map(|i| bucket(hasher, IpAddr::V4((i << 8).into()))).collect()
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
