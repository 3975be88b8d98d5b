//! Relay ports of one address, shared by all workers (RFC 8656 §7.2, RFC 6056).

mod bitmap;
mod range;

pub use bitmap::{PortLease, RelayPorts};
pub use range::{PortRange, PortRequirement};

/// Building blocks of the bitmap. `tests/interleavings.rs` compiles the bitmap with smaller parts,
/// to try every interleaving of its users.
mod parts {
    pub(super) use core::sync::atomic::AtomicU64;

    /// Words in the bitmap: one bit for each port.
    pub(super) const WORDS: usize = 65_536 / super::range::BITS;

    /// Ports drawn before the free ones are counted: with half of them taken one claim in 65,536
    /// counts.
    pub(super) const DRAWS: u64 = 16;
}

#[cfg(test)]
mod tests;
