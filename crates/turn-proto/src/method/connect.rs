//! Connect (RFC 6062 §5.2): connects to a peer from the relayed address. The request waits until
//! the connection is established or has failed.

use alloc::boxed::Box;

use stun_wire::AttributeType;
use turn_types::{ConnectionId, Instant, PendingId, RelayProtocol, WorkerId};

use crate::io::{
    Authenticated, ConnectError, Refusal, ReplyBuffer, Request, Responder, TcpCommand, Verdict,
};
use crate::policy::peers::{is_reachable_by_tcp, judge, read_peer};
use crate::random::Random;
use crate::store::{
    Allocations, NewPeers, Outbox, PeerConnection, Pending, PendingConnect, Slot, Wait, Waiting,
};

/// Stores used by Connect.
#[derive(Debug)]
pub(crate) struct Connect<'a> {
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) pending: &'a mut Pending,
    pub(crate) new_peers: &'a mut NewPeers,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) random: &'a mut Random,
    pub(crate) worker: WorkerId,
}

/// Result of [`TcpCommand::Connect`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    pub(crate) pending: PendingId,
    pub(crate) connection: ConnectionId,
    pub(crate) result: Result<(), ConnectError>,
}

impl Connect<'_> {
    pub(crate) fn handle(
        &mut self,
        own: &Authenticated<'_>,
        slot: Slot,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let Request { policy, rules, message, .. } = request;
        let now = request.now.instant;
        let allocation = self.allocations.get(slot);
        if allocation.attributes.protocol != RelayProtocol::Tcp {
            return Err(Refusal::RelayProtocol);
        }
        let (peer, named) = message
            .first(AttributeType::XOR_PEER_ADDRESS)
            .and_then(|value| read_peer(policy, value, message.transaction_id()))
            // No listener can have port 0.
            .filter(|(peer, _)| peer.port() != 0)
            .ok_or(Refusal::BadRequest)?;
        let socket = allocation.socket(peer.family(), now).ok_or(Refusal::PeerFamilyMismatch)?;
        if allocation.connections.is_with(peer) {
            return Err(Refusal::ConnectionExists);
        }
        // The relay listens on the source address of its connections, and would connect to itself.
        let is_itself = socket.local.0 == peer.0;
        let relay = socket.relay;
        let limits = allocation.grant.limits.as_deref();
        judge(policy, rules, limits, peer.ip(), named)
            .filter(|own| is_reachable_by_tcp(own, peer.port()) && !is_itself)
            .ok_or(Refusal::PeerForbidden)?;
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        if !self.allocations.may_connect(slot)
            || self.pending.check(Wait::Connect, &claimant).is_err()
        {
            return Err(Refusal::ConnectionLimit);
        }
        // Each Connect is charged as a new peer, because Connect requests can scan ports.
        self.new_peers.take(rules.quotas, now, allocation, 1)?;
        let slot_of_wait = self.pending.take_slot(Wait::Connect, &claimant);
        let connection = self.allocations.free_connection_id(self.worker, self.random);
        let responder = responder.clone();
        let key = (responder.path.five_tuple, responder.transaction);
        let waiting = Waiting::Connect(Box::new(PendingConnect { responder, connection }));
        let pending = self.pending.insert(now, key, slot_of_wait, waiting);
        let connecting = PeerConnection::connecting(connection, peer, now);
        self.allocations.add_connection(slot, connecting);
        self.outbox.tcp(TcpCommand::Connect { pending, connection, relay, peer });
        Ok(Verdict::Wait)
    }

    /// Handles the result of connecting to a peer. Returns the verdict of the Connect.
    pub(crate) fn peer_connected(
        &mut self,
        now: Instant,
        connected: Connected,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let Connected { pending, connection, result } = connected;
        let Some(waiting) = self.pending.take_connect(pending) else {
            // The Connect was abandoned.
            if result.is_ok() {
                self.outbox.tcp(TcpCommand::Close { connection });
            }
            return None;
        };
        let PendingConnect { responder, connection: wanted } = waiting;
        debug_assert_eq!(wanted, connection, "each command is answered by its own event");
        let made = result.is_ok() && self.allocations.connected(connection, now);
        if made {
            let verdict = responder.success(reply, |builder| {
                builder.connection_id(connection.0);
            });
            return Some((responder, verdict));
        }
        let known = self.allocations.remove_connection(connection);
        if result.is_ok() && !known {
            // The allocation has ended, or the rules now forbid the peer.
            self.outbox.tcp(TcpCommand::Close { connection });
        }
        let reason = Refusal::ConnectionFailed;
        self.allocations.count_refusal(&responder.path.five_tuple, reason);
        self.outbox.refused(&responder, reason);
        let verdict = responder.error(reply, reason, |_| ());
        Some((responder, verdict))
    }
}
