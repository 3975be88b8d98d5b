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
/// The peer's address.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 2);

/// Backends of clients and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) client: Backend,
    pub(crate) peer: Backend,
}
