//! A network address and port translator with the behaviours of RFC 4787.
//!
//! Port 0 of the node is the outside, all others are inside. Deliberately absent: hairpinning,
//! port preservation, paired pooling; no test here would see a difference.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use turn_types::Instant;

use crate::packet::{Body, Icmp, Packet};
use crate::rng::Rng;

/// Dependence of a mapping or a filter on the outside endpoint (RFC 4787 §§4.1, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// On nothing: one mapping for all destinations; as a filter, any host may answer.
    EndpointIndependent,
    /// On the remote address.
    Address,
    /// On the remote address and port.
    AddressAndPort,
}

/// Behaviour of a NAT.
#[derive(Clone, Debug)]
pub struct NatConfig {
    /// The outside address.
    pub public: IpAddr,
    /// The outside ports.
    pub ports: RangeInclusive<u16>,
    /// Dependence of the outside port on the destination.
    pub mapping: Dependence,
    /// Outside endpoints that may send in through a mapping.
    pub filtering: Dependence,
    /// Lifetime of a mapping after the last outgoing packet. RFC 4787 REQ-5 requires two minutes;
    /// many devices use thirty seconds.
    pub timeout: Duration,
}

impl NatConfig {
    /// Endpoint-independent in both: "full cone".
    #[must_use]
    pub const fn endpoint_independent(public: IpAddr) -> Self {
        let free = Dependence::EndpointIndependent;
        Self {
            public,
            ports: 1024..=65_535,
            mapping: free,
            filtering: free,
            timeout: Duration::from_secs(120),
        }
    }

    /// Address-dependent in both.
    #[must_use]
    pub const fn address_dependent(public: IpAddr) -> Self {
        let mut config = Self::endpoint_independent(public);
        config.mapping = Dependence::Address;
        config.filtering = Dependence::Address;
        config
    }

    /// Address- and port-dependent in both: "symmetric", the one that makes TURN necessary.
    #[must_use]
    pub const fn symmetric(public: IpAddr) -> Self {
        let mut config = Self::endpoint_independent(public);
        config.mapping = Dependence::AddressAndPort;
        config.filtering = Dependence::AddressAndPort;
        config
    }

    /// With another timeout of mappings.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

#[derive(Clone, Debug)]
struct Mapping {
    inside: SocketAddr,
    /// The node's port towards the inside host.
    port: usize,
    /// The remote this mapping is for, as far as the mapping depends on it.
    scope: Scope,
    outside_port: u16,
    /// Remotes that were sent to.
    remotes: Vec<SocketAddr>,
    expires: Instant,
}

/// As much of a remote address as counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    Address(IpAddr),
    Endpoint(SocketAddr),
}

impl Scope {
    const fn of(dependence: Dependence, remote: SocketAddr) -> Self {
        match dependence {
            Dependence::EndpointIndependent => Self::Any,
            Dependence::Address => Self::Address(remote.ip()),
            Dependence::AddressAndPort => Self::Endpoint(remote),
        }
    }
}

/// A NAT.
#[derive(Clone, Debug)]
pub struct Nat {
    config: NatConfig,
    mappings: Vec<Mapping>,
}

impl Nat {
    /// The outside port.
    pub(crate) const OUTSIDE: usize = 0;

    /// A NAT without mappings.
    #[must_use]
    pub const fn new(config: NatConfig) -> Self {
        Self { config, mappings: Vec::new() }
    }

    /// Forgets all mappings, as when the device restarts: inside hosts appear at other ports.
    pub fn forget(&mut self) {
        self.mappings.clear();
    }

    /// The behaviour; changes count from the next packet on.
    pub const fn config_mut(&mut self) -> &mut NatConfig {
        &mut self.config
    }

    /// Translates a packet that arrived on `port`; returns the outgoing packet and its port.
    pub(crate) fn translate(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        port: usize,
        packet: Packet,
    ) -> Option<(usize, Packet)> {
        self.mappings.retain(|mapping| now < mapping.expires);
        if port == Self::OUTSIDE {
            self.inbound(packet)
        } else {
            self.outbound(now, rng, port, packet)
        }
    }

    fn outbound(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        port: usize,
        mut packet: Packet,
    ) -> Option<(usize, Packet)> {
        // ICMP from inside hosts is dropped: a firewall would stop it anyway.
        if matches!(packet.body, Body::Icmp(_)) {
            return None;
        }
        let scope = Scope::of(self.config.mapping, packet.dst);
        let known = self.mappings.iter().position(|mapping| {
            mapping.inside == packet.src && mapping.port == port && mapping.scope == scope
        });
        let at = match known {
            Some(at) => at,
            None => {
                let mapping = Mapping {
                    inside: packet.src,
                    port,
                    scope,
                    outside_port: self.free_port(rng)?,
                    remotes: Vec::new(),
                    expires: now,
                };
                self.mappings.push(mapping);
                self.mappings.len() - 1
            }
        };
        let mapping = &mut self.mappings[at];
        mapping.expires = now + self.config.timeout;
        if !mapping.remotes.contains(&packet.dst) {
            mapping.remotes.push(packet.dst);
        }
        packet.src = SocketAddr::new(self.config.public, mapping.outside_port);
        Some((Self::OUTSIDE, packet))
    }

    fn inbound(&self, mut packet: Packet) -> Option<(usize, Packet)> {
        if packet.dst.ip() != self.config.public {
            return None;
        }
        let mapping =
            self.mappings.iter().find(|mapping| mapping.outside_port == packet.dst.port())?;
        // An error is let in when the packet it is about went out here (RFC 4787 REQ-10).
        let from = match &packet.body {
            Body::Udp(_) => packet.src,
            Body::Icmp(icmp) => icmp.about_dst,
        };
        let wanted = Scope::of(self.config.filtering, from);
        let admitted = wanted == Scope::Any
            || mapping
                .remotes
                .iter()
                .any(|remote| Scope::of(self.config.filtering, *remote) == wanted);
        if !admitted {
            return None;
        }
        packet.dst = mapping.inside;
        if let Body::Icmp(icmp) = &mut packet.body {
            *icmp = Icmp { about_src: mapping.inside, ..*icmp };
        }
        Some((mapping.port, packet))
    }

    /// A random free port, found by walking on from a random place: always found when there is one.
    fn free_port(&self, rng: &mut Rng) -> Option<u16> {
        let (low, high) = (*self.config.ports.start(), *self.config.ports.end());
        let count = u32::from(high.checked_sub(low)?) + 1;
        let start = rng.below(u64::from(count)) as u32;
        (0..count)
            .map(|step| low + ((start + step) % count) as u16)
            .find(|port| self.mappings.iter().all(|mapping| mapping.outside_port != *port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn out(nat: &mut Nat, at_secs: u64, dst: &str) -> SocketAddr {
        let now = Instant::ZERO + Duration::from_secs(at_secs);
        let packet = Packet::udp(addr("10.0.0.2:5000"), addr(dst), vec![1]);
        let (port, packet) = nat.translate(now, &mut Rng::new(at_secs), 1, packet).unwrap();
        assert_eq!(port, Nat::OUTSIDE);
        packet.src
    }

    fn comes_in(nat: &mut Nat, at_secs: u64, src: &str, dst: SocketAddr) -> bool {
        let now = Instant::ZERO + Duration::from_secs(at_secs);
        let packet = Packet::udp(addr(src), dst, vec![1]);
        let inside = nat.translate(now, &mut Rng::new(0), Nat::OUTSIDE, packet);
        inside.is_some_and(|(port, packet)| port == 1 && packet.dst == addr("10.0.0.2:5000"))
    }

    /// RFC 4787 §§4.1 and 5, one row per behaviour: equality of the mappings towards the same and
    /// another address, and the endpoints that may answer.
    #[test]
    fn behaves_as_rfc_4787_says() {
        let public: IpAddr = "203.0.113.9".parse().unwrap();
        for (config, same_address, other_address, other_port_in, stranger_in) in [
            (NatConfig::endpoint_independent(public), true, true, true, true),
            (NatConfig::address_dependent(public), true, false, true, false),
            (NatConfig::symmetric(public), false, false, false, false),
        ] {
            let name = format!("{:?}", config.mapping);
            let mut nat = Nat::new(config);
            let first = out(&mut nat, 0, "198.51.100.1:3478");
            assert_eq!(first.ip(), public);
            assert_eq!(out(&mut nat, 1, "198.51.100.1:3478"), first, "{name}: not stable");
            assert_eq!(out(&mut nat, 2, "198.51.100.1:9") == first, same_address, "{name}");
            assert!(comes_in(&mut nat, 3, "198.51.100.1:3478", first), "{name}");
            assert_eq!(comes_in(&mut nat, 3, "198.51.100.1:77", first), other_port_in, "{name}");
            assert_eq!(comes_in(&mut nat, 3, "192.0.2.4:3478", first), stranger_in, "{name}");
            assert_eq!(out(&mut nat, 4, "192.0.2.4:3478") == first, other_address, "{name}");
        }
    }

    #[test]
    fn mappings_time_out_unless_used_from_inside() {
        let config = NatConfig::symmetric("203.0.113.9".parse().unwrap());
        let mut nat = Nat::new(config.timeout(Duration::from_secs(30)));
        let first = out(&mut nat, 0, "198.51.100.1:3478");
        assert!(comes_in(&mut nat, 29, "198.51.100.1:3478", first));
        assert!(!comes_in(&mut nat, 30, "198.51.100.1:3478", first), "inbound must not prolong");
    }

    #[test]
    fn takes_the_last_free_port_and_then_none() {
        let mut config = NatConfig::symmetric("203.0.113.9".parse().unwrap());
        config.ports = 4000..=4003;
        let mut nat = Nat::new(config);
        let mut ports: Vec<_> =
            (1..=4).map(|n| out(&mut nat, n, &format!("198.51.100.1:{n}")).port()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [4000, 4001, 4002, 4003]);
        let packet = Packet::udp(addr("10.0.0.2:5000"), addr("198.51.100.1:5"), vec![]);
        assert!(nat.translate(Instant::ZERO, &mut Rng::new(0), 1, packet).is_none());
    }

    #[test]
    fn icmp_errors_of_outgoing_packets_come_in() {
        let mut nat = Nat::new(NatConfig::symmetric("203.0.113.9".parse().unwrap()));
        let outside = out(&mut nat, 0, "198.51.100.1:3478");
        let sent = Packet::udp(outside, addr("198.51.100.1:3478"), vec![1]);
        let error = sent.port_unreachable().unwrap();
        let (_, error) = nat.translate(Instant::ZERO, &mut Rng::new(0), 0, error).unwrap();
        assert_eq!(error.dst, addr("10.0.0.2:5000"));
        let Body::Icmp(icmp) = error.body else { panic!("still an ICMP error") };
        assert_eq!(icmp.about_src, addr("10.0.0.2:5000"));
        let other = Packet::udp(outside, addr("198.51.100.1:9"), vec![1]);
        let error = other.port_unreachable().unwrap();
        assert!(nat.translate(Instant::ZERO, &mut Rng::new(0), 0, error).is_none());
    }
}
