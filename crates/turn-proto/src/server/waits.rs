//! Requests that wait at the export of all clients (for a user, the authorizer, a peer or another
//! worker). Each is handled by the successor, or refused: none is left without an answer.

use alloc::boxed::Box;

use turn_types::{ClientPath, Now};

use super::Server;
use super::state::State;
use crate::io::{Answer, Refusal, ReplyBuffer, Responder};
use crate::store::Waiting;

/// Request whose wait has [ended](Server::end_wait).
#[derive(Debug)]
pub enum EndedWait {
    /// A request over a stream that waited for its user: to be handled from its bytes, before all
    /// that came after it.
    Unserved {
        /// Client.
        path: ClientPath,
        /// The request.
        request: Box<[u8]>,
    },
    /// A request over a stream that was refused. The response is in the reply buffer.
    Refused(Answer),
    /// A request over UDP or DTLS: its client sends it again (RFC 8489 §6.2.1).
    Dropped,
}

impl Server {
    /// Ends the wait of one request, the newest first; `None`: no request waits. To be called
    /// before an export, until it returns `None` after the commands were carried out: packets
    /// behind a Refresh by ticket (RFC 8016) are [polled](Self::poll_queued) then, and may wait
    /// anew.
    #[must_use = "the answer must be sent"]
    pub fn end_wait(&mut self, now: Now, reply: &mut ReplyBuffer) -> Option<EndedWait> {
        let Some(waiting) = self.state.pending.take_newest() else {
            self.state.expected.clear();
            self.state.moves().review_queues(now.instant);
            return None;
        };
        Some(self.state.end_wait(waiting, reply))
    }
}

impl State {
    fn end_wait(&mut self, waiting: Waiting, reply: &mut ReplyBuffer) -> EndedWait {
        match waiting {
            Waiting::User(lookup) => {
                let (path, request) = (lookup.request.path, lookup.request.bytes);
                if path.five_tuple.transport.is_datagram() {
                    return EndedWait::Dropped;
                }
                EndedWait::Unserved { path, request }
            }
            Waiting::Worker(waiting) => {
                self.refuse_wait(&waiting.responder, Refusal::MoveUnavailable, reply)
            }
            Waiting::Authorizer(allocation) | Waiting::Relay(allocation) => {
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
