//! Requests that wait for a user, the authorizer, a peer or another worker at an export. Each
//! request is handled by the successor, or refused.

use alloc::boxed::Box;

use turn_types::ClientPath;

use super::Server;
use super::state::State;
use crate::io::{Answer, QueuedPacket, Refusal, ReplyBuffer, Responder};
use crate::store::Waiting;

/// Result of [`Server::end_wait`].
#[derive(Debug)]
pub enum EndedWait {
    /// Request over a stream that waits for a user, or a message that follows a Refresh by ticket.
    /// The caller handles it again, before all later input.
    Unserved {
        /// Client.
        path: ClientPath,
        /// The request.
        request: Box<[u8]>,
    },
    /// Packet over UDP or DTLS that follows a Refresh by ticket. The caller handles the packet
    /// again, before all later packets of its client.
    Queued(QueuedPacket),
    /// Refused request over a stream. The response is in the reply buffer.
    Refused(Answer),
    /// Request over UDP or DTLS: the client retransmits (RFC 8489 §6.2.1).
    Dropped,
}

impl Server {
    /// Removes one waiting request, the newest first. Returns `None` if no request waits. The
    /// caller repeats the call before an export until `None`, and executes the commands after each
    /// call. Packets that follow a Refresh by ticket (RFC 8016) are removed first. Clients remain
    /// expected, for a rollback.
    #[must_use = "the answer must be sent"]
    pub fn end_wait(&mut self, reply: &mut ReplyBuffer) -> Option<EndedWait> {
        if let Some(packet) = self.state.queues.take_newest() {
            return Some(queued(packet));
        }
        let waiting = self.state.pending.take_newest()?;
        Some(self.state.end_wait(waiting, reply))
    }
}

/// Returns a packet to be handled again. Clients do not repeat data.
fn queued(packet: QueuedPacket) -> EndedWait {
    if packet.path.five_tuple.transport.is_datagram() {
        return EndedWait::Queued(packet);
    }
    let QueuedPacket { path, bytes: request, .. } = packet;
    EndedWait::Unserved { path, request }
}

/// Returns a request of a stream to be handled again. Requests over UDP and DTLS are dropped,
/// because clients repeat them.
fn unserved(path: ClientPath, request: Box<[u8]>) -> EndedWait {
    if path.five_tuple.transport.is_datagram() {
        return EndedWait::Dropped;
    }
    EndedWait::Unserved { path, request }
}

impl State {
    fn end_wait(&mut self, waiting: Waiting, reply: &mut ReplyBuffer) -> EndedWait {
        match waiting {
            Waiting::User(lookup) => unserved(lookup.request.path, lookup.request.bytes),
            // The next request for a peer repeats the look-up.
            Waiting::Keys => EndedWait::Dropped,
            Waiting::Worker(waiting) => {
                self.refuse_wait(&waiting.responder, Refusal::MoveUnavailable, reply)
            }
            Waiting::Authorizer(allocation)
            | Waiting::Confirmation(allocation, _)
            | Waiting::Relay(allocation) => {
                let responder = allocation.responder.clone();
                allocation.abandon(&mut self.outbox);
                self.refuse_wait(&responder, Refusal::AuthorizerUnavailable, reply)
            }
            Waiting::Connect(connect) => {
                self.allocations.close_connection(connect.connection, &mut self.outbox);
                self.refuse_wait(&connect.responder, Refusal::ConnectionFailed, reply)
            }
        }
    }

    fn refuse_wait(
        &mut self,
        responder: &Responder,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> EndedWait {
        let five_tuple = &responder.path.five_tuple;
        if five_tuple.transport.is_datagram() {
            return EndedWait::Dropped;
        }
        self.allocations.count_refusal(five_tuple, reason);
        self.outbox.refused(responder, reason);
        let answer = responder.error(reply, reason, |_| ()).into_answer(responder.path, false);
        answer.map_or(EndedWait::Dropped, EndedWait::Refused)
    }
}
