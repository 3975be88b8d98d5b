//! Where NAT behaviour discovery is served (RFC 5780 §6): four sockets at the corners of a square.

use core::net::SocketAddr;

use stun_wire::ChangeRequest;
use turn_types::{ClientPath, Transport};

use crate::policy::{DiscoverySockets, Policy};

/// One of the four.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner<'a> {
    sockets: &'a DiscoverySockets,
    ip: usize,
    port: usize,
}

impl<'a> Corner<'a> {
    /// The corner that a request came to; `None` where discovery is not served: it needs plain UDP, or
    /// plain TCP for its tests of mapping (RFC 5780 §6).
    pub(crate) fn of(policy: &'a Policy, path: &ClientPath) -> Option<Self> {
        let came_to = path.five_tuple.server.0;
        let corner = |sockets: &'a DiscoverySockets| {
            let places = [(0, 0), (0, 1), (1, 0), (1, 1)];
            let (ip, port) =
                places.into_iter().find(|&(ip, port)| sockets.local[ip][port] == came_to)?;
            Some(Self { sockets, ip, port })
        };
        match path.five_tuple.transport {
            Transport::Udp | Transport::Tcp => policy.discovery.iter().find_map(corner),
            Transport::Tls | Transport::Dtls => None,
        }
    }

    /// Where a request that came here wants its answer to come from (RFC 5780 §6.1, table 1).
    pub(crate) const fn changed(self, change: ChangeRequest) -> Self {
        let ip = if change.change_ip { 1 - self.ip } else { self.ip };
        let port = if change.change_port { 1 - self.port } else { self.port };
        Self { sockets: self.sockets, ip, port }
    }

    /// The corner with the other address and the other port.
    pub(crate) const fn opposite(self) -> Self {
        self.changed(ChangeRequest { change_ip: true, change_port: true })
    }

    /// Where it is bound.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.sockets.local[self.ip][self.port]
    }

    /// What clients are told.
    pub(crate) const fn public(&self) -> SocketAddr {
        self.sockets.public[self.ip][self.port]
    }
}
