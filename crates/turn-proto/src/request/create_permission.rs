//! CreatePermission (RFC 8656 §10.2): all of its XOR-PEER-ADDRESS attributes are installed, or none.

use alloc::vec::Vec;
use core::net::IpAddr;

use stun_wire::AttributeType;
use turn_types::{Instant, IpFamily};

use super::OwnRequest;
use crate::limits::PEERS_PER_REQUEST_MAX;
use crate::notice::Refusal;
use crate::peers::{judge, read_peer};
use crate::permission::Permission;
use crate::policy::Policy;
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{ReplyBuffer, Verdict};

impl State {
    pub(crate) fn create_permission(
        &mut self,
        own: &OwnRequest<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let policy = own.request.policy;
        let now = own.request.now.instant;
        let peers = named_peers(own)?;
        let allocation = self.table.get(own.slot);
        if peers.iter().any(|peer| allocation.half(IpFamily::of(peer.local), now).is_none()) {
            return Err(Refusal::PeerFamilyMismatch);
        }
        let expires = now + policy.lifetimes.permission;
        let permissions = peers
            .iter()
            .map(|peer| {
                let own = judge(policy, peer.local, peer.named).ok_or(Refusal::PeerForbidden)?;
                Ok(Permission { ip: peer.local, expires, own })
            })
            .collect::<Result<Vec<_>, Refusal>>()?;
        self.room_for(own.slot, now, policy, permissions.iter().map(|permission| permission.ip))?;
        for permission in permissions {
            self.table.permit(own.slot, permission);
        }
        self.table.arm(own.slot);
        Ok(own.responder.success(policy, reply, |_| ()))
    }

    /// Whether permissions for these distinct addresses fit the limit, after letting go of those
    /// that have run out, and the budget of new peers.
    pub(crate) fn room_for(
        &mut self,
        slot: Slot,
        now: Instant,
        policy: &Policy,
        ips: impl Iterator<Item = IpAddr>,
    ) -> Result<(), Refusal> {
        self.table.reclaim(slot, now, &mut self.outbox);
        let held = &self.table.get(slot).permissions;
        let new = ips.filter(|ip| !held.holds(*ip)).count();
        let limit = usize::try_from(policy.quotas.permissions).unwrap_or(usize::MAX);
        if held.len() + new > limit {
            return Err(Refusal::PermissionLimit);
        }
        self.take_new_peers(slot, now, policy, new)
    }

    /// Takes new peers of an allocation out of their budget.
    pub(crate) fn take_new_peers(
        &mut self,
        slot: Slot,
        now: Instant,
        policy: &Policy,
        count: usize,
    ) -> Result<(), Refusal> {
        let allocation = self.table.get(slot);
        let client = allocation.path.five_tuple.client.ip();
        let of = (client, &*allocation.credentials.account);
        self.new_peers.take(policy, now, of, count)
    }
}

/// A peer address in the form that packets carry, and as the request named it.
struct NamedPeer {
    local: IpAddr,
    named: IpAddr,
}

/// The distinct addresses that the request names. Ports do not count (RFC 8656 §10.2).
fn named_peers(own: &OwnRequest<'_>) -> Result<Vec<NamedPeer>, Refusal> {
    let message = &own.request.message;
    let mut peers: Vec<NamedPeer> = Vec::new();
    let attributes = message.attributes().filter(|a| a.kind == AttributeType::XOR_PEER_ADDRESS);
    for (index, attribute) in attributes.enumerate() {
        if index == PEERS_PER_REQUEST_MAX {
            return Err(Refusal::PermissionLimit);
        }
        let (peer, named) =
            read_peer(own.request.policy, attribute.value, message.transaction_id())
                .ok_or(Refusal::BadRequest)?;
        let local = peer.ip();
        if !peers.iter().any(|other| other.local == local) {
            peers.push(NamedPeer { local, named });
        }
    }
    if peers.is_empty() { Err(Refusal::BadRequest) } else { Ok(peers) }
}
