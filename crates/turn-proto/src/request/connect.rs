//! Connect (RFC 6062 §5.2): a connection with a peer, from the relayed address. The request waits until
//! it is made or has failed.

use alloc::boxed::Box;

use stun_wire::AttributeType;
use turn_types::{ConnectionId, Instant, PendingId, RelayProtocol};

use super::OwnRequest;
use crate::answer::Responder;
use crate::command::TcpCommand;
use crate::connection::PeerConnection;
use crate::event::ConnectError;
use crate::notice::Refusal;
use crate::peers::{is_reachable_by_tcp, judge, read_peer};
use crate::pending::Waiting;
use crate::policy::Policy;
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

/// A Connect that waits for its peer.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) responder: Responder,
    pub(crate) connection: ConnectionId,
}

/// The answer to [`TcpCommand::Connect`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    pub(crate) pending: PendingId,
    pub(crate) connection: ConnectionId,
    pub(crate) result: Result<(), ConnectError>,
}

impl State {
    pub(crate) fn connect(&mut self, own: &OwnRequest<'_>) -> Result<Verdict, Refusal> {
        let policy = own.request.policy;
        let now = own.request.now.instant;
        let message = &own.request.message;
        let allocation = self.table.get(own.slot);
        if allocation.protocol != RelayProtocol::Tcp {
            return Err(Refusal::RelayProtocol);
        }
        let (peer, named) = message
            .first(AttributeType::XOR_PEER_ADDRESS)
            .and_then(|value| read_peer(policy, value, message.transaction_id()))
            // Nobody listens on port 0.
            .filter(|(peer, _)| peer.port() != 0)
            .ok_or(Refusal::BadRequest)?;
        let half = allocation.half(peer.family(), now).ok_or(Refusal::PeerFamilyMismatch)?;
        if allocation.connections.is_with(peer) {
            return Err(Refusal::ConnectionExists);
        }
        // The relay itself listens where its connections leave from: it would call itself.
        let is_itself = half.local.0 == peer.0;
        let relay = half.relay;
        judge(policy, peer.ip(), named)
            .filter(|own| is_reachable_by_tcp(own, peer.port()) && !is_itself)
            .ok_or(Refusal::PeerForbidden)?;
        if !self.has_room_for_connection(own.slot) || self.pending.is_full_of_connects() {
            return Err(Refusal::ConnectionLimit);
        }
        // Each counts, as ports can be scanned by it.
        self.take_new_peers(own.slot, now, policy, 1)?;
        let connection = self.next_connection();
        let responder = own.responder.clone();
        let key = (responder.path.five_tuple, responder.transaction);
        let waiting = Waiting::Connect(Box::new(Connecting { responder, connection }));
        let pending = self.pending.insert(now, key, waiting);
        self.table.add_connection(own.slot, PeerConnection::connecting(connection, peer, now));
        self.outbox.tcp(TcpCommand::Connect { pending, connection, relay, peer });
        Ok(Verdict::Wait)
    }

    /// A connection was made, or was not. The verdict is that of the Connect.
    pub(crate) fn peer_connected(
        &mut self,
        (policy, now): (&Policy, Instant),
        connected: Connected,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let Connected { pending, connection, result } = connected;
        let Some(Connecting { responder, connection: wanted }) = self.pending.take_connect(pending)
        else {
            // Nobody waits for it any more.
            if result.is_ok() {
                self.outbox.tcp(TcpCommand::Close { connection });
            }
            return None;
        };
        debug_assert_eq!(wanted, connection, "each command is answered by its own event");
        let made = result.is_ok() && self.table.connected(connection, now);
        if made {
            let verdict = responder.success(policy, reply, |builder| {
                builder.connection_id(connection.0);
            });
            return Some((responder, verdict));
        }
        let known = self.table.remove_connection(connection);
        if result.is_ok() && !known {
            // Its allocation has ended, or the rules forbid its peer now.
            self.outbox.tcp(TcpCommand::Close { connection });
        }
        let reason = Refusal::ConnectionFailed;
        self.tell_refusal(&responder, reason);
        let verdict = responder.error(policy, reply, reason, |_| ());
        Some((responder, verdict))
    }
}
