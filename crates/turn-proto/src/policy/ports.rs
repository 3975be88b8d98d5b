//! Relay ports of an address, shared by all workers (RFC 8656 §7.2, RFC 6056).

mod bitmap;
mod range;

pub use bitmap::{PortLease, RelayPorts};
pub use range::{PortRange, PortRequirement};

/// Building blocks of the bitmap. `tests/interleavings.rs` compiles the bitmap with smaller parts,
/// to test every interleaving of concurrent workers.
mod parts {
    pub(super) use core::sync::atomic::AtomicU64;

    /// Number of words in the bitmap, which has a bit for each port.
    pub(super) const WORDS: usize = 65_536 / super::range::BITS;

    /// Number of random draws before the free ports are counted. With half of the ports in use, one
    /// claim in 65,536 counts.
    pub(super) const DRAWS: u64 = 16;
}

#[cfg(test)]
mod tests;
