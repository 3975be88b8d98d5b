//! Peers as clients name them and as sockets know them. Behind 1:1 NAT a relay address has a public
//! form that clients use and a local one that packets carry; and a peer that is an address of ours
//! may be reached only where another allocation lives.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use stun_wire::{TransactionId, value};
use turn_types::{PeerAddr, RelayProtocol};

use super::peer_rules::PeerAccess;
use super::ports::RelayPorts;
use super::{GrantLimits, Policy, RealmRules, RelayPrefix};

/// For a permitted peer that is an address of ours: the ports there. Only ports of live
/// allocations may be reached.
pub(crate) type OwnPorts = Option<PortsOfOurs>;

/// The ports of an address of ours.
#[derive(Clone, Debug)]
pub(crate) enum PortsOfOurs {
    /// Of a relay address.
    Address(Arc<RelayPorts>),
    /// Of the address with this number within a prefix.
    OfPrefix(RelayPrefix, u32),
}

impl PortsOfOurs {
    /// The ports of an address that is relayed from.
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

/// Reads an XOR-PEER-ADDRESS: the peer in its local form, and the IP address as it was named.
pub(crate) fn read_peer(
    policy: &Policy,
    value: &[u8],
    id: TransactionId,
) -> Option<(PeerAddr, IpAddr)> {
    let named = value::xor_address(value, id).ok()?;
    let local = to_local(policy, named.ip());
    Some((PeerAddr(SocketAddr::new(local, named.port())), named.ip()))
}

/// The address that packets to and from `ip` carry.
fn to_local(policy: &Policy, ip: IpAddr) -> IpAddr {
    policy.relay.iter().find(|relay| relay.public == ip).map_or(ip, |relay| relay.local)
}

/// The address that clients are told for a peer.
pub(crate) fn to_public(policy: &Policy, peer: PeerAddr) -> SocketAddr {
    let own = policy.relay.iter().find(|relay| relay.local == peer.ip());
    own.map_or(peer.0, |relay| SocketAddr::new(relay.public, peer.port()))
}

/// Applies the peer rules of a realm, and the limits of a credential, to `local`, which the client
/// named as `named`; `None` forbids it. An address of ours is permitted with the ports that count
/// as peers there.
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
    // A rule may be written for either form of an address behind 1:1 NAT.
    let public = to_public(policy, SocketAddr::new(local, 0).into()).ip();
    let denied = |ip| ip != local && rules.judge(ip) == PeerAccess::Denied;
    if denied(named) || denied(public) {
        return None;
    }
    match rules.judge(local) {
        PeerAccess::Allowed => Some(None),
        PeerAccess::OwnAddress => PortsOfOurs::find(policy, local).map(Some),
        // A rule about the network behind 1:1 NAT, which has the local form: the client named the
        // public one.
        PeerAccess::Denied if named == public && public != local => {
            PortsOfOurs::find(policy, local).map(Some)
        }
        PeerAccess::Denied => None,
    }
}

/// Applies the same to an address that was permitted before.
pub(crate) fn judge_again(
    policy: &Policy,
    rules: RealmRules<'_>,
    limits: Option<&GrantLimits>,
    local: IpAddr,
) -> Option<OwnPorts> {
    judge(policy, rules, limits, local, to_public(policy, SocketAddr::new(local, 0).into()).ip())
}

/// Returns true if a permitted peer may be connected to at this port, or connect from it.
pub(crate) fn is_reachable_by_tcp(own: &OwnPorts, port: u16) -> bool {
    own.as_ref().is_none_or(|ports| ports.is_open(port, RelayProtocol::Tcp))
}

/// Returns true if a permitted peer may be reached at this port: any, unless it is an address of
/// ours.
pub(crate) fn is_reachable(own: &OwnPorts, port: u16) -> bool {
    own.as_ref().is_none_or(|ports| ports.is_open(port, RelayProtocol::Udp))
}
