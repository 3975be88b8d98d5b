//! Latency buckets of the program `sink`.

use hdrhistogram::Histogram;

/// As in `bpf/sink.h`: one bucket per nanosecond below 32, then 32 for each doubling, to 2^36.
const STEPS_BITS: usize = 5;
const STEPS: usize = 1 << STEPS_BITS;
const VALUE_BITS: usize = 36;

/// Number of buckets.
pub(super) const BUCKETS: usize = (VALUE_BITS - STEPS_BITS + 1) * STEPS;

/// The highest latency that is counted in a bucket.
pub(super) const fn highest(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let steps = bucket - shift * STEPS;
    ((steps as u64 + 1) << shift) - 1
}

/// Adds buckets to a histogram, each packet with the highest latency of its bucket, at most 1/32
/// too much, and at most `max`.
pub(super) fn add(to: &mut Histogram<u64>, buckets: &[u64], max: u64) {
    for (bucket, &count) in buckets.iter().enumerate() {
        if count > 0 {
            to.saturating_record_n(highest(bucket).clamp(1, max.max(1)), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `bucket_of` of the program.
    fn bucket_of(value: u64) -> usize {
        let bits = 64 - value.leading_zeros() as usize;
        let shift = bits.saturating_sub(STEPS_BITS + 1);
        shift * STEPS + (value >> shift) as usize
    }

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut lowest = 0;
        for bucket in 0..BUCKETS {
            let highest = highest(bucket);
            assert_eq!(bucket_of(lowest), bucket);
            assert_eq!(bucket_of(highest), bucket);
            assert!((highest - lowest) <= lowest / 32, "{bucket}: {lowest}..={highest}");
            lowest = highest + 1;
        }
        assert_eq!(lowest, 1 << VALUE_BITS);
    }

    #[test]
    fn no_latency_exceeds_the_longest() {
        let mut buckets = [0; BUCKETS];
        buckets[bucket_of(1000)] = 9;
        buckets[bucket_of(100_000)] = 1;
        let mut histogram = Histogram::new_with_max(1 << 36, 2).unwrap();
        add(&mut histogram, &buckets, 100_001);
        assert_eq!(histogram.len(), 10);
        assert!((1000..=1032).contains(&histogram.value_at_quantile(0.5)));
        assert!(histogram.equivalent(histogram.max(), 100_001));
    }
}
