//! Seeded randomness: SplitMix64, small and the same on every machine. Not for secrets.

use std::ops::Range;
use std::time::Duration;

/// Probability, in parts of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1_000_000);

    /// `percent` times in a hundred; more than 100 counts as 100.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self::per_million(percent.saturating_mul(10_000))
    }

    /// `parts` times in a million; more counts as always.
    #[must_use]
    pub const fn per_million(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 { Self::ALWAYS } else { Self(parts) }
    }
}

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator that shares nothing with this one from now on: one per part of the world, so
    /// that a change in one part leaves the luck of the others alone.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        // A separate constant keeps the child off the parent's sequence.
        Self { state: self.next_u64() ^ 0xA5A5_5A5A_C3C3_3C3C }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0. The bias of the multiplication is beneath
    /// anything a test could notice.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// An index into something of `len` elements; 0 when `len` is 0.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in the range; its start when the range is empty.
    pub const fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Draws: true with this probability.
    pub const fn happens(&mut self, chance: Chance) -> bool {
        // Certainty draws nothing from the sequence: disabling a fault must not change the rest.
        match chance.0 {
            0 => false,
            1_000_000.. => true,
            parts => self.below(1_000_000) < parts as u64,
        }
    }

    /// A time below `bound`, in nanoseconds.
    pub fn duration_below(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// One of the elements.
    ///
    /// # Panics
    /// When there are none.
    pub const fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// `len` random bytes.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// A 32-byte seed for another generator.
    #[must_use]
    pub fn seed_32(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.fill(&mut seed);
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values of SplitMix64 for seed 1234567 (from the generator's publication).
    #[test]
    fn is_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let got = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn chances_are_kept() {
        let mut rng = Rng::new(7);
        let hits = (0..100_000).filter(|_| rng.happens(Chance::percent(5))).count();
        assert!((4_700..5_300).contains(&hits), "{hits} of 100000 at 5 %");
        assert!(!rng.happens(Chance::NEVER));
        assert!(rng.happens(Chance::percent(100)));
    }

    #[test]
    fn certainty_takes_nothing_from_the_sequence() {
        let (mut a, mut b) = (Rng::new(3), Rng::new(3));
        assert!(a.happens(Chance::ALWAYS) && !a.happens(Chance::NEVER));
        assert_eq!(a.next_u64(), b.next_u64());
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = Rng::new(9);
        for _ in 0..1_000 {
            assert!(rng.below(10) < 10);
            assert!((5..8).contains(&rng.within(5..8)));
        }
        assert_eq!((rng.below(0), rng.within(4..4)), (0, 4));
    }
}
