//! The sockets of NAT behaviour discovery (RFC 5780 §6): two addresses with two ports each.

use core::net::SocketAddr;

use stun_wire::{AttributeType, ChangeRequest};
use turn_types::{ClientPath, Transport};

use super::{DiscoverySockets, Policy};

/// One of the four sockets, seen from a request that came to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiscoverySocket<'a> {
    sockets: &'a DiscoverySockets,
    ip: usize,
    port: usize,
}

impl<'a> DiscoverySocket<'a> {
    /// The socket that a request came to; `None` where discovery is not served: it needs plain UDP,
    /// or plain TCP for its tests of mapping (RFC 5780 §6).
    pub(crate) fn of(policy: &'a Policy, path: &ClientPath) -> Option<Self> {
        let came_to = path.five_tuple.server.0;
        let find = |sockets: &'a DiscoverySockets| {
            let indexes = [(0, 0), (0, 1), (1, 0), (1, 1)];
            let (ip, port) =
                indexes.into_iter().find(|&(ip, port)| sockets.local[ip][port] == came_to)?;
            Some(Self { sockets, ip, port })
        };
        match path.five_tuple.transport {
            Transport::Udp | Transport::Tcp => policy.discovery.iter().find_map(find),
            Transport::Tls | Transport::Dtls => None,
        }
    }

    /// The socket that the response is to be sent from (RFC 5780 §6.1, table 1).
    pub(crate) const fn changed(self, change: ChangeRequest) -> Self {
        let ip = if change.change_ip { 1 - self.ip } else { self.ip };
        let port = if change.change_port { 1 - self.port } else { self.port };
        Self { sockets: self.sockets, ip, port }
    }

    /// The socket with the other address and the other port.
    pub(crate) const fn alternate(self) -> Self {
        self.changed(ChangeRequest { change_ip: true, change_port: true })
    }

    /// The address that it is bound to.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.sockets.local[self.ip][self.port]
    }

    /// Its address in responses.
    pub(crate) const fn public(&self) -> SocketAddr {
        self.sockets.public[self.ip][self.port]
    }
}

/// Returns true for the comprehension-required attributes that are understood there, and nowhere
/// else.
pub(crate) fn is_understood(kind: AttributeType) -> bool {
    matches!(
        kind,
        AttributeType::CHANGE_REQUEST | AttributeType::PADDING | AttributeType::RESPONSE_PORT
    )
}
