//! Token bucket for one direction of an allocation (RFC 8656 §5: limiting bandwidth).

use core::time::Duration;

use state_format::fields;
use turn_types::{Instant, IpFamily};

use crate::limits::{CARRIED_DEBT_MAX, UDP_PAYLOAD_MAX};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Maximum charge of a packet in bytes.
const PACKET_MAX: u64 = with_headers(IpFamily::V6, 1, UDP_PAYLOAD_MAX as u64);

/// Returns the size in bytes of packets including the IP and UDP headers. `payload` is the sum of
/// all payloads. Small packets cost the host and links more than their payload suggests.
pub(crate) const fn with_headers(sent_over: IpFamily, packets: u64, payload: u64) -> u64 {
    let headers = match sent_over {
        IpFamily::V4 => 20 + 8,
        IpFamily::V6 => 40 + 8,
    };
    payload.saturating_add(packets.saturating_mul(headers))
}

/// Token bucket in bytes. The bucket refills at the rate of the realm, and holds the bytes of one
/// second. The capacity is never less than the largest packet, so a low rate slows traffic without
/// stopping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Rate in bytes per second; 0 is unlimited.
    rate: u64,
    bytes: u64,
    filled: Instant,
}

fields!(Bucket { 1 => rate, 2 => bytes, 3 => filled });

impl Bucket {
    /// Returns a full bucket.
    pub(crate) const fn new(rate: u64, now: Instant) -> Self {
        Self { rate, bytes: u64::MAX, filled: now }
    }

    /// Returns the rate in bytes per second; 0 is unlimited.
    pub(crate) const fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) const fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Takes `bytes`. Returns false and takes nothing if the bucket holds fewer bytes.
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
            // Time that is too short for a byte remains unsettled. Only credited time is settled.
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

    /// Takes `bytes` that have already passed. Returns the time until which further bytes must
    /// wait, if the bucket is in debt.
    pub(crate) fn carry(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        // Refill first, with the bytes for the time since the last refill.
        self.take(now, 0);
        self.draw(bytes);
        (self.rate > 0 && now < self.filled).then_some(self.filled)
    }

    /// Takes `bytes` that a fast path has already relayed at the same rate. If the bucket holds
    /// fewer bytes, the bucket is emptied and the refill is delayed. The delay is the time that the
    /// missing bytes take at the rate. Traffic through the sockets therefore gets only the
    /// remaining rate.
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
        // Offer of ten times the rate for 10 s, in steps that do not divide evenly.
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
        // Traffic that passes here within 100 s while a fast path reports its bytes every second.
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
