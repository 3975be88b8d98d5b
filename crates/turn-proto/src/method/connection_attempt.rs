//! ConnectionAttempt (RFC 6062 §5.3): indication about a peer's connection to a relayed address.

use stun_wire::{AttributeType, Class, MessageBuilder, Method};
use turn_types::{ConnectionId, Instant, PeerAddr, RelayId, WorkerId};

use crate::io::{Answer, PeerRefusal, ReplyBuffer};
use crate::policy::Policy;
use crate::policy::peers::{is_reachable_by_tcp, to_public};
use crate::random::Random;
use crate::store::{Allocations, PeerConnection};

/// Peer that has connected to a relayed address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerArrival<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) worker: WorkerId,
    pub(crate) relay: RelayId,
    pub(crate) peer: PeerAddr,
}

/// Adds the connection of a permitted peer, and writes the indication for the client.
pub(crate) fn handle(
    arrival: &PeerArrival<'_>,
    allocations: &mut Allocations,
    random: &mut Random,
    reply: &mut ReplyBuffer,
) -> Result<(ConnectionId, Answer), PeerRefusal> {
    let PeerArrival { policy, now, worker, relay, peer } = *arrival;
    let slot = allocations.of_relay(relay).ok_or(PeerRefusal::RelayClosed)?;
    let allocation = allocations.get(slot);
    if allocation.socket(peer.family(), now).is_none() {
        return Err(PeerRefusal::RelayClosed);
    }
    let live = allocation.permissions.live(peer.ip(), now);
    let permission = live.ok_or(PeerRefusal::NoPermission)?;
    let judged;
    let own = if allocations.is_reviewed(slot) {
        &permission.own
    } else {
        judged = allocation.judge(policy, peer.ip()).ok_or(PeerRefusal::NoPermission)?;
        &judged
    };
    if !is_reachable_by_tcp(own, peer.port()) {
        return Err(PeerRefusal::OwnAddress);
    }
    if !allocations.may_connect(slot) {
        return Err(PeerRefusal::TooMany);
    }
    let to = allocation.path;
    let transaction = random.transaction();
    let id = allocations.free_connection_id(worker, random);
    let attempt = Method::CONNECTION_ATTEMPT;
    let mut builder = MessageBuilder::new(reply, Class::Indication, attempt, transaction);
    builder.connection_id(id.0);
    builder.xor_address(AttributeType::XOR_PEER_ADDRESS, to_public(policy, peer));
    let len = builder.finish().and_then(|len| u16::try_from(len).ok());
    // The two short attributes always fit.
    let len = len.ok_or(PeerRefusal::TooMany)?;
    allocations.add_connection(slot, PeerConnection::unbound(id, peer, now));
    Ok((id, Answer { to, len, error: false, held: false }))
}
