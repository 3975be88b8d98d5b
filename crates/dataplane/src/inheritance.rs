//! Parts of one process for the next.

use std::net::SocketAddr;

use turn_types::{AllocationId, RelayId, SocketId};

/// Part of one worker, with sockets of type `S` and ways to earlier processes of type `C`.
#[derive(Debug)]
pub struct Inheritance<S, C> {
    /// The UDP listeners, in order.
    pub listeners: Vec<S>,
    /// The sockets of relays that share one.
    pub shared: Vec<S>,
    /// The last id that the worker has given.
    pub last_id: AllocationId,
    /// The allocations.
    pub allocations: Vec<InheritedAllocation<S>>,
    /// Sessions of DTLS that stay, the oldest processes first.
    pub staying: Vec<StayingSessions<C>>,
}

/// Sessions of DTLS that stay with one process, which has their keys. The next one gets the datagrams of their clients, and passes them on.
#[derive(Debug)]
pub struct StayingSessions<C> {
    /// The sessions.
    pub sessions: Vec<StayingSession>,
    /// The way to the process.
    pub conduit: C,
}

/// A session of DTLS that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StayingSession {
    /// Address of its client.
    pub client: SocketAddr,
    /// Address of this server that the client sends to.
    pub server: SocketAddr,
    /// Its number in the process that has it.
    pub number: SocketId,
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
