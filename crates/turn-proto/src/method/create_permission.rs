//! CreatePermission (RFC 8656 §10.2): installs permissions for all XOR-PEER-ADDRESS attributes, or
//! for none.

use alloc::vec::Vec;
use core::net::IpAddr;

use stun_wire::AttributeType;
use turn_types::{Instant, IpFamily};

use crate::io::{Authenticated, Refusal, ReplyBuffer, Request, Verdict};
use crate::limits::PEERS_PER_REQUEST_MAX;
use crate::policy::Quotas;
use crate::policy::peers::{judge, read_peer};
use crate::store::{Allocations, NewPeers, Outbox, Permission, Slot};

/// Stores used by CreatePermission and ChannelBind.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) new_peers: &'a mut NewPeers,
    pub(crate) outbox: &'a mut Outbox,
}

impl Permit<'_> {
    pub(crate) fn create_permission(
        &mut self,
        own: &Authenticated<'_>,
        slot: Slot,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let (policy, rules, now) = (request.policy, request.rules, request.now.instant);
        let peers = named_peers(&request)?;
        let allocation = self.allocations.get(slot);
        if peers.iter().any(|peer| allocation.socket(IpFamily::of(peer.local), now).is_none()) {
            return Err(Refusal::PeerFamilyMismatch);
        }
        let limits = allocation.grant.limits.as_deref();
        let expires = now + rules.lifetimes.permission;
        let permissions = peers
            .iter()
            .map(|peer| {
                let own = judge(policy, rules, limits, peer.local, peer.named);
                let own = own.ok_or(Refusal::PeerForbidden)?;
                Ok(Permission { ip: peer.local, expires, own })
            })
            .collect::<Result<Vec<_>, Refusal>>()?;
        self.make_room(
            slot,
            now,
            rules.quotas,
            permissions.iter().map(|permission| permission.ip),
        )?;
        for permission in permissions {
            self.allocations.permit(slot, permission);
        }
        self.allocations.get_mut(slot).history.permitted(now);
        self.allocations.arm(slot);
        Ok(responder.success(reply, |_| ()))
    }

    /// Removes expired permissions, and checks that permissions for these distinct addresses fit
    /// the limit. Charges new addresses to the budget of new peers.
    pub(super) fn make_room(
        &mut self,
        slot: Slot,
        now: Instant,
        quotas: &Quotas,
        ips: impl Iterator<Item = IpAddr>,
    ) -> Result<(), Refusal> {
        self.allocations.reclaim(slot, now, self.outbox);
        let allocation = self.allocations.get(slot);
        let held = &allocation.permissions;
        let new = ips.filter(|ip| !held.holds(*ip)).count();
        let limit = usize::try_from(quotas.permissions).unwrap_or(usize::MAX);
        if held.len() + new > limit {
            return Err(Refusal::PermissionLimit);
        }
        self.new_peers.take(quotas, now, allocation, new)
    }
}

/// Peer address in the form used in packets, and as named in the request.
struct NamedPeer {
    local: IpAddr,
    named: IpAddr,
}

/// Returns the distinct addresses named in the request. Ports are ignored (RFC 8656 §10.2).
fn named_peers(request: &Request<'_>) -> Result<Vec<NamedPeer>, Refusal> {
    let message = &request.message;
    let mut peers: Vec<NamedPeer> = Vec::new();
    let attributes = message.attributes().filter(|a| a.kind == AttributeType::XOR_PEER_ADDRESS);
    for (index, attribute) in attributes.enumerate() {
        if index == PEERS_PER_REQUEST_MAX {
            return Err(Refusal::PermissionLimit);
        }
        let (peer, named) = read_peer(request.policy, attribute.value, message.transaction_id())
            .ok_or(Refusal::BadRequest)?;
        let local = peer.ip();
        if !peers.iter().any(|other| other.local == local) {
            peers.push(NamedPeer { local, named });
        }
    }
    if peers.is_empty() { Err(Refusal::BadRequest) } else { Ok(peers) }
}
