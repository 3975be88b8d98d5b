//! Peer addresses in requests and in packets. With 1:1 NAT a relay address has a public form, which
//! clients use, and a local form, which packets carry. A peer at an address of this host can be
//! reached only at a port of a live allocation.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use stun_wire::{TransactionId, value};
use turn_types::{PeerAddr, RelayProtocol};

use super::peer_rules::PeerAccess;
use super::ports::RelayPorts;
use super::{GrantLimits, Policy, RealmRules, RelayPrefix};

/// Ports of a permitted peer at an address of this host; `None` for any other peer. Only ports of
/// live allocations may be reached.
pub(crate) type OwnPorts = Option<PortsOfOurs>;

/// Ports of an address of this host.
#[derive(Clone, Debug)]
pub(crate) enum PortsOfOurs {
    /// Ports of a relay address.
    Address(Arc<RelayPorts>),
    /// Ports of the address with this number within a prefix.
    OfPrefix(RelayPrefix, u32),
}

impl PortsOfOurs {
    /// Returns the ports of a relay address or of an address within a prefix.
    fn find(policy: &Policy, ip: IpAddr) -> Option<Self> {
        if let Some(prefix) = policy.prefix_of(ip) {
            return Some(Self::OfPrefix(prefix.clone(), prefix.number_of(ip)));
        }
        let own = policy.relay.iter().find(|relay| relay.local == ip)?;
        Some(Self::Address(Arc::clone(&own.ports)))
    }

    fn is_open(&self, port: u16, protocol: RelayProtocol) -> bool {
        match self {
            Self::Address(ports) => match protocol {
                RelayProtocol::Udp => ports.is_open(port),
                RelayProtocol::Tcp => ports.is_listening(port),
            },
            Self::OfPrefix(prefix, number) => prefix.is_open(*number, port, protocol),
        }
    }
}

/// Reads an XOR-PEER-ADDRESS. Returns the peer in local form, and the IP address from the request.
pub(crate) fn read_peer(
    policy: &Policy,
    value: &[u8],
    id: TransactionId,
) -> Option<(PeerAddr, IpAddr)> {
    let named = value::xor_address(value, id).ok()?;
    let local = to_local(policy, named.ip());
    Some((PeerAddr(SocketAddr::new(local, named.port())), named.ip()))
}

/// Returns the address that packets to and from `ip` carry.
fn to_local(policy: &Policy, ip: IpAddr) -> IpAddr {
    policy.relay.iter().find(|relay| relay.public == ip).map_or(ip, |relay| relay.local)
}

/// Returns the address of a peer in messages to clients.
pub(crate) fn to_public(policy: &Policy, peer: PeerAddr) -> SocketAddr {
    let own = policy.relay.iter().find(|relay| relay.local == peer.ip());
    own.map_or(peer.0, |relay| SocketAddr::new(relay.public, peer.port()))
}

/// Applies the peer rules of a realm and the limits of a credential to a peer. `local` is the
/// address in packets, and `named` is the address in the client's request. Returns `None` for a
/// forbidden peer, and the ports of a permitted address of this host.
pub(crate) fn judge(
    policy: &Policy,
    rules: RealmRules<'_>,
    limits: Option<&GrantLimits>,
    local: IpAddr,
    named: IpAddr,
) -> Option<OwnPorts> {
    if limits.is_some_and(|limits| !limits.allow_peer(local, named)) {
        return None;
    }
    let rules = rules.peer_rules;
    // A rule may contain either form of an address with 1:1 NAT.
    let public = to_public(policy, SocketAddr::new(local, 0).into()).ip();
    let denied = |ip| ip != local && rules.judge(ip) == PeerAccess::Denied;
    if denied(named) || denied(public) {
        return None;
    }
    match rules.judge(local) {
        PeerAccess::Allowed => Some(None),
        PeerAccess::OwnAddress => PortsOfOurs::find(policy, local).map(Some),
        // The rule denies the local network of the 1:1 NAT, which contains the local form. The
        // client named the public form.
        PeerAccess::Denied if named == public && public != local => {
            PortsOfOurs::find(policy, local).map(Some)
        }
        PeerAccess::Denied => None,
    }
}

/// Judges a permitted address again.
pub(crate) fn judge_again(
    policy: &Policy,
    rules: RealmRules<'_>,
    limits: Option<&GrantLimits>,
    local: IpAddr,
) -> Option<OwnPorts> {
    judge(policy, rules, limits, local, to_public(policy, SocketAddr::new(local, 0).into()).ip())
}

/// Returns true if TCP connections with a permitted peer may use this port, in either direction.
pub(crate) fn is_reachable_by_tcp(own: &OwnPorts, port: u16) -> bool {
    own.as_ref().is_none_or(|ports| ports.is_open(port, RelayProtocol::Tcp))
}

/// Returns true if a permitted peer may be reached at this port. Only addresses of this host have
/// ports that may not be reached.
pub(crate) fn is_reachable(own: &OwnPorts, port: u16) -> bool {
    own.as_ref().is_none_or(|ports| ports.is_open(port, RelayProtocol::Udp))
}
