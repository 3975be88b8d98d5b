//! Parts of one process for the next.

use std::net::SocketAddr;

use turn_types::{AllocationId, RelayId};

/// Part of one worker, with sockets of type `S`.
#[derive(Debug)]
pub struct Inheritance<S> {
    /// The UDP listeners, in order.
    pub listeners: Vec<S>,
    /// The sockets of relays that share one.
    pub shared: Vec<S>,
    /// The last id that the worker has given.
    pub last_id: AllocationId,
    /// The allocations.
    pub allocations: Vec<InheritedAllocation<S>>,
}

/// An allocation for the next process.
pub struct InheritedAllocation<S> {
    /// Its state: keys among it.
    pub state: Vec<u8>,
    /// Its relays.
    pub relays: Vec<InheritedRelay<S>>,
}

impl<S> std::fmt::Debug for InheritedAllocation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InheritedAllocation").finish_non_exhaustive()
    }
}

/// A relay for the next process.
#[derive(Debug)]
pub struct InheritedRelay<S> {
    /// Its name in the old process.
    pub relay: RelayId,
    /// Its address.
    pub at: SocketAddr,
    /// Its socket; `None` if it shares one.
    pub socket: Option<S>,
}
