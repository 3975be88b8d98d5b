//! Servers that clients are redirected to (RFC 8489 §10) by transport, and the choice of a server
//! for a client.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use turn_types::{FiveTuple, IpFamily, Transport};

/// Servers that clients are redirected to. A transport without a server of the required family uses
/// the servers of `any`. A client without a server of its family is served here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternateServers {
    /// Servers for every transport.
    pub any: Vec<SocketAddr>,
    /// Servers for clients over UDP.
    pub udp: Vec<SocketAddr>,
    /// Servers for clients over TCP.
    pub tcp: Vec<SocketAddr>,
    /// Servers for clients over TLS and DTLS.
    pub tls: Vec<SocketAddr>,
    /// ALTERNATE-DOMAIN, for TLS and DTLS.
    pub domain: Option<String>,
}

/// Servers for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alternate<'a> {
    /// Server of the client's family.
    pub(crate) first: SocketAddr,
    /// Server of the other family.
    pub(crate) second: Option<SocketAddr>,
    /// ALTERNATE-DOMAIN, only for transports with a certificate to compare.
    pub(crate) domain: Option<&'a str>,
}

impl AlternateServers {
    /// Returns servers for every transport.
    #[must_use]
    pub fn of(any: Vec<SocketAddr>) -> Self {
        Self { any, ..Self::default() }
    }

    /// Returns true if no server exists.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        let Self { any, udp, tcp, tls, domain: _ } = self;
        any.is_empty() && udp.is_empty() && tcp.is_empty() && tls.is_empty()
    }

    /// Returns the servers for a client. The result is stable while the servers remain, so a
    /// retransmission gets an equal response.
    pub(crate) fn for_client(&self, five_tuple: &FiveTuple) -> Option<Alternate<'_>> {
        let client = five_tuple.client.0;
        let own = match five_tuple.transport {
            Transport::Udp => &self.udp,
            Transport::Tcp => &self.tcp,
            Transport::Tls | Transport::Dtls => &self.tls,
        };
        let family = five_tuple.client.family();
        let choose =
            |family| chosen(own, client, family).or_else(|| chosen(&self.any, client, family));
        let has_certificate = matches!(five_tuple.transport, Transport::Tls | Transport::Dtls);
        Some(Alternate {
            first: choose(family)?,
            second: choose(family.other()),
            domain: self.domain.as_deref().filter(|_| has_certificate),
        })
    }
}

/// Returns the server of a family with the largest weight for a client (rendezvous hashing).
/// Clients spread evenly. When a server is removed, only the clients of this server get another
/// server.
fn chosen(servers: &[SocketAddr], client: SocketAddr, family: IpFamily) -> Option<SocketAddr> {
    let of_family = servers.iter().filter(|server| IpFamily::of(server.ip()) == family);
    of_family.max_by_key(|server| (weight(client, **server), **server)).copied()
}

fn weight(client: SocketAddr, server: SocketAddr) -> u64 {
    mix(fold(fold(0, client), server))
}

fn fold(hash: u64, address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let (high, low) = ((ip >> 64) as u64, ip as u64);
    mix(mix(mix(hash ^ high) ^ low) ^ u64::from(address.port()))
}

/// Finalizer of SplitMix64. Each bit of the result depends on all bits of the input.
const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|n| SocketAddr::from(([203, 0, 113, n], 3478))).collect()
    }

    fn clients() -> impl Iterator<Item = SocketAddr> {
        (0..4000_u16).map(|n| {
            let [high, low] = (n / 40).to_be_bytes();
            SocketAddr::from(([198, 51, high, low], 40_000 + n % 40))
        })
    }

    #[test]
    fn clients_spread_evenly() {
        let servers = servers(4);
        for server in &servers {
            let count = clients()
                .filter(|client| chosen(&servers, *client, IpFamily::V4) == Some(*server))
                .count();
            assert!((850..1150).contains(&count), "{server}: {count}");
        }
    }

    #[test]
    fn only_the_clients_of_a_server_that_goes_get_another() {
        let all = servers(5);
        let left = &all[1..];
        for client in clients() {
            let before = chosen(&all, client, IpFamily::V4).unwrap();
            let after = chosen(left, client, IpFamily::V4).unwrap();
            assert!(before == after || before == all[0], "{client}");
        }
    }
}
