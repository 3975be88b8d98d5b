//! Addresses of the host that the server runs on.

use std::net::IpAddr;

use turn_types::Prefix;

/// Addresses of the host that the server runs on, which come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    usable: Vec<IpAddr>,
    routed: Vec<Prefix>,
    leaving: Vec<IpAddr>,
}

impl HostAddresses {
    /// Addresses that sockets can be bound to; the ones that last, and by which the host reaches
    /// others, first.
    #[must_use]
    pub const fn new(usable: Vec<IpAddr>) -> Self {
        Self { usable, routed: Vec::new(), leaving: Vec::new() }
    }

    /// Adds networks that are routed to the host as a whole: sockets can be bound to any address of
    /// them.
    #[must_use]
    pub fn with_routed(self, routed: Vec<Prefix>) -> Self {
        Self { routed, ..self }
    }

    /// Adds addresses that the host had a moment ago.
    #[must_use]
    pub fn with_leaving(self, leaving: Vec<IpAddr>) -> Self {
        Self { leaving, ..self }
    }

    /// Addresses of interfaces that sockets can be bound to, in their order.
    #[must_use]
    pub fn usable(&self) -> &[IpAddr] {
        &self.usable
    }

    /// Returns true if sockets can be bound to an address.
    #[must_use]
    pub fn has(&self, ip: IpAddr) -> bool {
        self.usable.contains(&ip) || self.routed.iter().any(|prefix| prefix.contains(ip))
    }

    /// Returns true if the host had an address a moment ago, and may have it again.
    #[must_use]
    pub fn had(&self, ip: IpAddr) -> bool {
        self.leaving.contains(&ip)
    }
}
