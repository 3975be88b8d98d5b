//! What a kernel path is made with.

use std::time::Duration;

use crate::limits::{PROOF_HOLDS, RENEW_EVERY};

/// What a kernel path is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Channels that there is room for, within [`limits::FLOWS`](crate::limits::FLOWS).
    pub flows: u32,
    /// The device that the way out is looked up from, as [`device::forwarding`] says; 0: the one
    /// that a packet came by.
    ///
    /// [`device::forwarding`]: crate::device::forwarding
    pub look_up_from: u32,
    /// What proof a direction of a flow wants before the programs carry it.
    pub proof: Proof,
}

/// How long a packet that went through the system's own stack proves that the host's rules let its direction
/// through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// So long packets are carried behind it; zero: without any proof.
    pub holds: Duration,
    /// So long after it another is left to the stack.
    pub renew_every: Duration,
}

impl Proof {
    /// That of a server.
    pub const SERVER: Self = Self { holds: PROOF_HOLDS, renew_every: RENEW_EVERY };

    /// None is wanted: for tests.
    pub const UNWANTED: Self = Self { holds: Duration::ZERO, renew_every: Duration::ZERO };
}
