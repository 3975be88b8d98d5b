//! Histogram of batch sizes.

/// Histogram of small counts in six fixed ranges: 1, 2, 3-4, 5-8, 9-16, 17 and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    counts: [u64; Self::RANGES],
    sum: u64,
}

impl Occupancy {
    /// Number of ranges.
    pub const RANGES: usize = 6;
    /// Largest count of each range. The last range has no upper limit, but neither a worker's
    /// receive call nor a run exceeds 64.
    pub const UPPER_BOUNDS: [usize; Self::RANGES] = [1, 2, 4, 8, 16, 64];

    /// Creates an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; Self::RANGES], sum: 0 }
    }

    /// Records a batch of `size` entries. An empty batch is not counted.
    pub fn record(&mut self, size: usize) {
        if size > 0 {
            // 1 → 0, 2 → 1, 3-4 → 2, 5-8 → 3, ...: the number of bits of `size - 1`.
            let range = (usize::BITS - (size - 1).leading_zeros()) as usize;
            self.counts[range.min(Self::RANGES - 1)] += 1;
            self.sum += size as u64;
        }
    }

    /// Returns the number of batches in each range.
    #[must_use]
    pub const fn counts(&self) -> &[u64; Self::RANGES] {
        &self.counts
    }

    /// Returns the sum of all sizes.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_falls_into_its_range() {
        for size in 1..=64 {
            let mut one = Occupancy::new();
            one.record(size);
            let expected = Occupancy::UPPER_BOUNDS.iter().position(|&bound| size <= bound);
            assert_eq!(one.counts().iter().position(|&n| n == 1), expected, "{size}");
        }
    }

    #[test]
    fn nothing_is_not_counted_and_much_is() {
        let mut occupancy = Occupancy::new();
        occupancy.record(0);
        assert_eq!(occupancy, Occupancy::default());
        occupancy.record(1000);
        assert_eq!((occupancy.counts(), occupancy.sum()), (&[0, 0, 0, 0, 0, 1], 1000));
    }
}
