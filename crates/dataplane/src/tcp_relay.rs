//! TCP allocations (RFC 6062): listening relays, connections with peers, and the pipes to clients'
//! connections.

mod connect;
mod handover;
mod peer;
mod pipe;

use std::collections::BTreeMap;
use std::time::Duration;

use linux_net::TcpOptions;
use turn_types::{Instant, RelayId, SocketId};

use crate::io::Net;
use crate::limits::PEERS_WAITING;
use peer::Peers;
pub(crate) use peer::Readiness;

/// Options of connections with peers. Silent connections are probed, and closed after a quarter of
/// an hour without a response. Relays do not share ports with listeners: the kernel would prefer a
/// relay, with a specific address, to a listener at the wildcard address.
pub(crate) const PEER_OPTIONS: TcpOptions = TcpOptions {
    reuse_port: false,
    keepalive: Duration::from_mins(10),
    unacknowledged: Duration::from_mins(1),
    backlog: PEERS_WAITING,
    device: None,
    free: false,
};

/// TCP relays of one worker.
#[derive(Debug)]
pub(crate) struct TcpRelay<N: Net> {
    listening: BTreeMap<RelayId, N::Acceptor>,
    /// Relays that cannot accept now, because no descriptors are left.
    paused: Vec<RelayId>,
    peers: Peers<N>,
}

impl<N: Net> Default for TcpRelay<N> {
    fn default() -> Self {
        Self { listening: BTreeMap::new(), paused: Vec::new(), peers: Peers::default() }
    }
}

impl<N: Net> TcpRelay<N> {
    /// Returns the number of connections with peers.
    pub(crate) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Returns true if a relay listens for TCP.
    pub(crate) fn listens(&self, relay: RelayId) -> bool {
        self.listening.contains_key(&relay)
    }

    /// Returns the time at which the next pipe over its bandwidth resumes.
    pub(crate) fn next_resume(&self) -> Option<Instant> {
        self.peers.next_resume()
    }

    /// Returns the clients' connections of overdue pipes.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<SocketId> {
        self.peers.overdue(now)
    }
}
