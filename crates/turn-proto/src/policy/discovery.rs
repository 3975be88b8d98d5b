//! Sockets of NAT behaviour discovery (RFC 5780 §6): two addresses with two ports each.

use core::net::SocketAddr;

use stun_wire::{AttributeType, ChangeRequest};
use turn_types::{ClientPath, Transport};

use super::{DiscoverySockets, Policy};

/// Socket of discovery that received a request, or another of the four sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiscoverySocket<'a> {
    sockets: &'a DiscoverySockets,
    ip: usize,
    port: usize,
}

impl<'a> DiscoverySocket<'a> {
    /// Returns the socket that received a request; `None` if discovery is not served there.
    /// Discovery requires plain UDP, or plain TCP for the mapping tests (RFC 5780 §6).
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

    /// Returns the socket that must send the response (RFC 5780 §6.1, table 1).
    pub(crate) const fn changed(self, change: ChangeRequest) -> Self {
        let ip = if change.change_ip { 1 - self.ip } else { self.ip };
        let port = if change.change_port { 1 - self.port } else { self.port };
        Self { sockets: self.sockets, ip, port }
    }

    /// Returns the socket with the other address and the other port.
    pub(crate) const fn alternate(self) -> Self {
        self.changed(ChangeRequest { change_ip: true, change_port: true })
    }

    /// Returns the address that the socket is bound to.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.sockets.local[self.ip][self.port]
    }

    /// Returns the address of the socket in responses.
    pub(crate) const fn public(&self) -> SocketAddr {
        self.sockets.public[self.ip][self.port]
    }
}

/// Returns true for the comprehension-required attributes that only discovery understands.
pub(crate) fn is_understood(kind: AttributeType) -> bool {
    matches!(
        kind,
        AttributeType::CHANGE_REQUEST | AttributeType::PADDING | AttributeType::RESPONSE_PORT
    )
}
