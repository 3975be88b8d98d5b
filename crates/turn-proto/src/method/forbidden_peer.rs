//! Forbidden peer that caused a refusal, and the rule that forbids the peer.

use core::net::SocketAddr;

use stun_wire::AttributeType;
use turn_types::PeerAddr;

use crate::io::{Authenticated, ForbiddenPeer};
use crate::policy::peer_rules::DeniedBy;
use crate::policy::peers::{judge, read_peer, to_public};

/// Returns the first peer of a request that the rules forbid.
pub(crate) fn find(own: &Authenticated<'_>) -> Option<ForbiddenPeer> {
    let request = &own.request;
    let (policy, rules, message) = (request.policy, request.rules, &request.message);
    let limits = own.grant.limits.as_deref();
    let peers = message.attributes().filter(|one| one.kind == AttributeType::XOR_PEER_ADDRESS);
    let named = peers.filter_map(|one| read_peer(policy, one.value, message.transaction_id()));
    let mut forbidden =
        named.filter(|(local, named)| judge(policy, rules, limits, local.ip(), *named).is_none());
    let (local, address) = forbidden.next()?;
    if limits.is_some_and(|limits| !limits.allow_peer(local.ip(), address)) {
        return Some(ForbiddenPeer { address, by: DeniedBy::Credential, rule: None });
    }
    let public = to_public(policy, PeerAddr(SocketAddr::new(local.ip(), 0))).ip();
    let forms = [local.ip(), address, public];
    let denied = |ip| rules.peer_rules.ruling(ip).err().map(|by| (ip, by));
    // If the rules allow all forms, the peer is an address of this host without a relay.
    let (ip, by) = forms.into_iter().find_map(denied).unwrap_or((address, DeniedBy::OwnAddress));
    let rule = (by == DeniedBy::Rule).then(|| rules.peer_rules.denying_rule(ip).cloned());
    Some(ForbiddenPeer { address, by, rule: rule.flatten() })
}
