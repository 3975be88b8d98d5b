//! Randomness of a server: a cryptographic generator with a seed from the caller.

use core::fmt;

use ahash::RandomState;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use stun_wire::TransactionId;

pub(crate) struct Random(ChaCha12Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns each of `items` once, starting with a random item.
    pub(crate) fn rotated<I: Iterator + Clone>(
        &mut self,
        items: I,
    ) -> impl Iterator<Item = I::Item> + use<I> {
        let count = items.clone().count();
        let start = if count == 0 { 0 } else { self.u64() % count as u64 };
        let start = usize::try_from(start).unwrap_or(0);
        items.cycle().skip(start).take(count)
    }

    /// Returns a new transaction id, uniform over 96 bits (RFC 8489 §5).
    pub(crate) fn transaction(&mut self) -> TransactionId {
        let mut id = [0; 12];
        self.0.fill_bytes(&mut id);
        TransactionId(id)
    }

    /// Returns a keyed hash. Senders cannot choose keys that collide.
    pub(crate) fn hasher(&mut self) -> RandomState {
        RandomState::with_seeds(self.u64(), self.u64(), self.u64(), self.u64())
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
