//! Options of a kernel path.

use std::time::Duration;

use crate::limits::{PROOF_HOLDS, RENEW_EVERY};

/// Options of a kernel path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Channels that there is room for, within [`limits::FLOWS`](crate::limits::FLOWS).
    pub flows: u32,
    /// The device that next hops are looked up from, see [`device::forwarding`]; 0: the inbound
    /// one.
    ///
    /// [`device::forwarding`]: crate::device::forwarding
    pub look_up_from: u32,
    /// Proof that a direction of a flow needs before the programs carry it.
    pub proof: Proof,
}

/// Validity of the proof that the host's rules forward a direction: a packet of it that passed the
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Time for which packets are relayed after it; zero: without any proof.
    pub holds: Duration,
    /// Age at which another packet is punted to the stack.
    pub renew_every: Duration,
}

impl Proof {
    /// That of a server.
    pub const SERVER: Self = Self { holds: PROOF_HOLDS, renew_every: RENEW_EVERY };

    /// No proof is required: for tests.
    pub const NOT_REQUIRED: Self = Self { holds: Duration::ZERO, renew_every: Duration::ZERO };
}
