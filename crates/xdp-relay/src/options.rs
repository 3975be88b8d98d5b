//! Options of a kernel path.

use std::time::Duration;

use crate::limits::{PROOF_HOLDS, RENEW_EVERY};

/// Options of a kernel path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of channels, within [`limits::FLOWS`](crate::limits::FLOWS).
    pub flows: u32,
    /// Index of the device from which next hops are looked up, see [`device::forwarding`]. 0 means
    /// the inbound device.
    ///
    /// [`device::forwarding`]: crate::device::forwarding
    pub look_up_from: u32,
    /// Proof that a direction of a flow needs before the programs relay that direction.
    pub proof: Proof,
}

/// Validity of a direction's proof. The proof is a packet that passed the stack, which shows that
/// the host's rules forward the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Time for which packets are relayed after a proof. Zero means that no proof is required.
    pub holds: Duration,
    /// Age of a proof at which another packet is punted to the stack.
    pub renew_every: Duration,
}

impl Proof {
    /// Proof parameters of a server.
    pub const SERVER: Self = Self { holds: PROOF_HOLDS, renew_every: RENEW_EVERY };

    /// Proof parameters of tests, which require no proof.
    pub const NOT_REQUIRED: Self = Self { holds: Duration::ZERO, renew_every: Duration::ZERO };
}
