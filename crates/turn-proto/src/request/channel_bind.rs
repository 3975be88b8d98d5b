//! ChannelBind (RFC 8656 §12.2): binds a number to a peer, and permits the peer's address.

use core::iter;

use stun_wire::{AttributeType, ChannelNumber, value};
use turn_types::{PeerAddr, RelayProtocol};

use super::OwnRequest;
use crate::channel::Channel;
use crate::notice::Refusal;
use crate::peers::{is_reachable, judge, read_peer};
use crate::permission::Permission;
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

impl State {
    pub(crate) fn channel_bind(
        &mut self,
        own: &OwnRequest<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let policy = own.request.policy;
        let now = own.request.now.instant;
        let message = &own.request.message;
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
        let allocation = self.table.get(own.slot);
        if allocation.protocol != RelayProtocol::Udp {
            return Err(Refusal::RelayProtocol);
        }
        let free = allocation.channels.check(number, peer, now);
        free.map_err(|_conflict| Refusal::ChannelConflict)?;
        allocation.half(peer.family(), now).ok_or(Refusal::PeerFamilyMismatch)?;
        let ports = judge(policy, peer.ip(), named)
            .filter(|ports| is_reachable(ports, peer.port()))
            .ok_or(Refusal::PeerForbidden)?;
        self.room_for(own.slot, now, policy, iter::once(peer.ip()))?;
        self.room_for_channel(own, peer)?;

        let expires = now + policy.lifetimes.permission;
        self.table.permit(own.slot, Permission { ip: peer.ip(), expires, own: ports.clone() });
        let expires = now + policy.lifetimes.channel;
        let channel = Channel { number, peer, expires, own: ports, announced: None };
        self.table.bind(own.slot, channel, &mut self.outbox);
        self.table.arm(own.slot);
        Ok(own.responder.success(policy, reply, |_| ()))
    }

    /// Whether one more channel fits the limit, unless the peer has its channel already.
    fn room_for_channel(&self, own: &OwnRequest<'_>, peer: PeerAddr) -> Result<(), Refusal> {
        let channels = &self.table.get(own.slot).channels;
        let limit = usize::try_from(own.request.policy.quotas.channels).unwrap_or(usize::MAX);
        let refreshed = channels.of_peer(peer, own.request.now.instant).is_some();
        if refreshed || channels.len() < limit { Ok(()) } else { Err(Refusal::ChannelLimit) }
    }
}
