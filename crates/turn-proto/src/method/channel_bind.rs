//! ChannelBind (RFC 8656 §12.2): binds a channel number to a peer, and permits the peer's address.

use core::iter;

use stun_wire::{AttributeType, ChannelNumber, value};
use turn_types::RelayProtocol;

use super::create_permission::Permit;
use crate::io::{Authenticated, Refusal, ReplyBuffer, Request, Verdict};
use crate::policy::peers::{is_reachable, judge, read_peer};
use crate::store::{Channel, Permission, Slot};

impl Permit<'_> {
    pub(crate) fn channel_bind(
        &mut self,
        own: &Authenticated<'_>,
        slot: Slot,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let Request { policy, rules, message, .. } = request;
        let now = request.now.instant;
        let number = message
            .first(AttributeType::CHANNEL_NUMBER)
            .and_then(|value| value::channel_number(value).ok())
            .ok_or(Refusal::BadRequest)?;
        let exists =
            if policy.rfc5766_clients { ChannelNumber::new_rfc5766 } else { ChannelNumber::new };
        let number = exists(number).ok_or(Refusal::ChannelNumber)?;
        let (peer, named) = message
            .first(AttributeType::XOR_PEER_ADDRESS)
            .and_then(|value| read_peer(policy, value, message.transaction_id()))
            // No datagram can be sent to port 0.
            .filter(|(peer, _)| peer.port() != 0)
            .ok_or(Refusal::BadRequest)?;
        let allocation = self.allocations.get(slot);
        if allocation.attributes.protocol != RelayProtocol::Udp {
            return Err(Refusal::RelayProtocol);
        }
        let free = allocation.channels.check(number, peer, now);
        free.map_err(|_conflict| Refusal::ChannelConflict)?;
        allocation.socket(peer.family(), now).ok_or(Refusal::PeerFamilyMismatch)?;
        let limits = allocation.grant.limits.as_deref();
        let ports = judge(policy, rules, limits, peer.ip(), named)
            .filter(|ports| is_reachable(ports, peer.port()))
            .ok_or(Refusal::PeerForbidden)?;
        self.make_room(slot, now, rules.quotas, iter::once(peer.ip()))?;
        let channels = &self.allocations.get(slot).channels;
        let limit = usize::try_from(rules.quotas.channels).unwrap_or(usize::MAX);
        if channels.of_peer(peer, now).is_none() && channels.len() >= limit {
            return Err(Refusal::ChannelLimit);
        }

        let expires = now + rules.lifetimes.permission;
        self.allocations.permit(slot, Permission { ip: peer.ip(), expires, own: ports.clone() });
        let expires = now + rules.lifetimes.channel;
        let awaits_data = self.allocations.has_routes();
        let channel = Channel { number, peer, expires, own: ports, awaits_data, route: None };
        self.allocations.bind(slot, channel, self.outbox);
        self.allocations.get_mut(slot).history.bound(now);
        self.allocations.arm(slot);
        Ok(responder.success(reply, |_| ()))
    }
}
