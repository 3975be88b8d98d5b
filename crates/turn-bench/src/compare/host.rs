//! The three hosts of a comparison, their addresses, and the backends of its two ends.

use std::net::Ipv4Addr;

use crate::traffic::Backend;

/// One of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// The TURN clients.
    Client,
    /// The server.
    Server,
    /// The peer.
    Peer,
}

impl Host {
    /// All hosts, in their row.
    pub(crate) const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Peer];

    /// Name in namespaces and roles of cores.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Peer => "peer",
        }
    }

    pub(super) const fn initial(self) -> char {
        match self {
            Self::Client => 'c',
            Self::Server => 's',
            Self::Peer => 'p',
        }
    }
}

/// The client's address.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 2);
/// The server's on the link to the client: where it listens.
pub(crate) const LISTEN: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 1);
/// The server's on the link to the peer: where it relays.
pub(crate) const RELAY: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 1);
/// The peer's address on its link.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 2);
/// Behind it, the peers of the sessions, one for each, from the first address on. A server that
/// relays for several clients from one address tells them apart by their peers.
pub(crate) const PEERS: &str = "10.79.0.0/16";
/// The first of them.
pub(crate) const FIRST_PEER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// The same as a range of addresses.
pub(crate) const PEER_RANGE: &str = "10.79.0.0-10.79.255.255";

/// The network that the server may relay from, each session from an address of its own.
pub(crate) const RELAYS: &str = "10.80.0.0/16";

/// Backends of clients and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) client: Backend,
    pub(crate) peer: Backend,
}
