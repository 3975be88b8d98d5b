//! A token bucket for one direction of one allocation (RFC 8656 §5: limiting bandwidth).

use core::time::Duration;

use state_format::fields;
use turn_types::{Instant, IpFamily};

use crate::limits::{CARRIED_DEBT_MAX, UDP_PAYLOAD_MAX};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The largest packet that is charged, in bytes.
const PACKET_MAX: u64 = with_headers(IpFamily::V6, 1, UDP_PAYLOAD_MAX as u64);

/// The size of packets that are sent over an IP family, with their headers of IP and UDP, of so
/// many bytes of payload together. Small packets cost the host and its links more than their
/// payload says.
pub(crate) const fn with_headers(sent_over: IpFamily, packets: u64, payload: u64) -> u64 {
    let headers = match sent_over {
        IpFamily::V4 => 20 + 8,
        IpFamily::V6 => 40 + 8,
    };
    payload.saturating_add(packets.saturating_mul(headers))
}

/// Bytes that may still pass. It fills at the rate of its realm and holds one second's worth, but
/// never less than the largest packet, so that a low rate slows traffic and does not cut it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Bytes per second; 0 is unlimited.
    rate: u64,
    bytes: u64,
    filled: Instant,
}

fields!(Bucket { 1 => rate, 2 => bytes, 3 => filled });

impl Bucket {
    /// A full bucket.
    pub(crate) const fn new(rate: u64, now: Instant) -> Self {
        Self { rate, bytes: u64::MAX, filled: now }
    }

    /// Bytes per second; 0 is unlimited.
    pub(crate) const fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) const fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Takes `bytes`, or nothing if there are not enough.
    pub(crate) fn take(&mut self, now: Instant, bytes: u64) -> bool {
        let rate = self.rate;
        if rate == 0 {
            return true;
        }
        let capacity = rate.max(PACKET_MAX);
        let elapsed = now.as_nanos().saturating_sub(self.filled.as_nanos());
        let gained = u128::from(elapsed) * u128::from(rate) / u128::from(NANOS_PER_SECOND);
        let gained = u64::try_from(gained).unwrap_or(u64::MAX);
        if gained > 0 {
            // Time that was too short for a byte is kept: only what was credited is settled.
            let settled = u128::from(gained) * u128::from(NANOS_PER_SECOND) / u128::from(rate);
            let settled = u64::try_from(settled).unwrap_or(u64::MAX);
            self.filled = Instant::from_nanos(self.filled.as_nanos().saturating_add(settled));
            self.bytes = self.bytes.saturating_add(gained);
        }
        self.bytes = self.bytes.min(capacity);
        let enough = self.bytes >= bytes;
        if enough {
            self.bytes -= bytes;
        }
        enough
    }

    /// Takes `bytes` that have passed already; the next ones are to wait
    /// until the moment that is returned, if one is.
    pub(crate) fn carry(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        // Fills it with what the time since then gives.
        self.take(now, 0);
        self.draw(bytes);
        (self.rate > 0 && now < self.filled).then_some(self.filled)
    }

    /// Takes `bytes` that another path let pass at the same rate, since the bucket was filled last
    /// or before. Where they are more than it holds it is empty, and begins to fill by so much
    /// later as the rest takes at its rate: traffic through here has the rest of the rate.
    pub(crate) fn draw(&mut self, bytes: u64) {
        let rate = self.rate;
        if rate == 0 {
            return;
        }
        let held = self.bytes.min(rate.max(PACKET_MAX));
        self.bytes = held.saturating_sub(bytes);
        let missing = bytes.saturating_sub(held);
        let nanos = u128::from(missing) * u128::from(NANOS_PER_SECOND) / u128::from(rate);
        let nanos = nanos.min(CARRIED_DEBT_MAX.as_nanos());
        self.filled = self.filled + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_the_rate_and_one_second_of_burst() {
        const RATE: u64 = 1_000_000;
        let start = Instant::ZERO + Duration::from_secs(7);
        let mut bucket = Bucket::new(RATE, start);
        let mut passed = 0;
        // 10 s of an offer of ten times the rate, in steps that do not divide evenly.
        for step in 0..100_000u64 {
            let now = start + Duration::from_micros(100) * u32::try_from(step).unwrap();
            if bucket.take(now, 1003) {
                passed += 1003;
            }
        }
        assert!((10_990_000..=11_000_000).contains(&passed), "{passed}");
    }

    #[test]
    fn what_passes_elsewhere_leaves_the_rest_of_the_rate() {
        const RATE: u64 = 1_000_000;
        let start = Instant::ZERO + Duration::from_secs(7);
        // Of 100 s, told in steps of 1 s: how much passes here beside it.
        let passed = |elsewhere: u64| {
            let mut bucket = Bucket::new(RATE, start);
            let mut passed = 0;
            for step in 0..100_000u64 {
                let now = start + Duration::from_millis(step);
                if step.is_multiple_of(1_000) {
                    bucket.draw(if step == 0 { RATE } else { elsewhere });
                }
                while bucket.take(now, 1_000) {
                    passed += 1_000;
                }
            }
            passed
        };
        let most = 100 * RATE;
        assert!((most - 2 * RATE..=most).contains(&passed(0)));
        let half = passed(RATE / 2);
        assert!((most / 2 - 2 * RATE..=most / 2 + 2 * RATE).contains(&half), "{half}");
        let none = passed(RATE);
        assert!(none <= 2 * RATE, "{none}");
    }

    #[test]
    fn what_was_drawn_is_waited_for_and_no_longer_than_the_limit() {
        const RATE: u64 = 100_000;
        let start = Instant::ZERO + Duration::from_secs(7);
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::new(RATE, start);
        bucket.draw(30_000);
        assert!(bucket.take(start, 70_000), "what it held is less by what was drawn");
        assert!(!bucket.take(start, 1));
        bucket.draw(2 * RATE);
        assert!(!bucket.take(start + second * 2, 1));
        assert!(bucket.take(start + second * 3, RATE));
        bucket.draw(u64::MAX);
        let end = start + second * 3 + CARRIED_DEBT_MAX;
        assert!(!bucket.take(end, 1));
        assert!(bucket.take(end + second, RATE));
        bucket.set_rate(0);
        bucket.draw(u64::MAX);
        bucket.set_rate(RATE);
        assert!(bucket.take(end + second * 2, RATE), "an unlimited rate draws nothing");
    }

    #[test]
    fn what_has_passed_is_waited_for_only_under_a_rate() {
        let start = Instant::ZERO + Duration::from_secs(7);
        let mut bucket = Bucket::new(100_000, start);
        assert_eq!(bucket.carry(start, 1), None, "there is enough");
        assert!(bucket.carry(start, 300_000).is_some_and(|until| until > start));
        bucket.set_rate(0);
        assert_eq!(bucket.carry(start, 300_000), None, "the limit was lifted");
    }

    #[test]
    fn the_largest_packet_passes_at_the_lowest_rate() {
        let mut bucket = Bucket::new(1, Instant::ZERO);
        assert!(bucket.take(Instant::ZERO, PACKET_MAX));
        assert!(!bucket.take(Instant::ZERO + Duration::from_secs(1), 2));
        assert!(bucket.take(Instant::ZERO + Duration::from_secs(3), 2));
    }

    #[test]
    fn a_rate_of_zero_is_unlimited() {
        let mut bucket = Bucket::new(0, Instant::ZERO);
        assert!((0..1000).all(|_| bucket.take(Instant::ZERO, 60_000)));
    }
}
