//! Move of an allocation from one worker to another.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use fair_share::Claimant;
use turn_types::{AllocationId, ConnectionId, FiveTuple, Instant, Now, RelayId, WorkerId};

use super::Moves;
use super::claim::{claim, respond};
use super::path::mobile_slot;
use crate::io::{
    Command, EndReason, Fetch, Notice, Promise, Question, Refusal, ReplyBuffer, Request, Responder,
    TicketRefresh, Verdict, WorkerAnswer,
};
use crate::limits::{MOVE_AGAIN_AFTER, MOVE_WITHIN};
use crate::policy::Policy;
use crate::store::{Allocation, ExpectedClient, Next, PendingMove, Slot, Wait, Waiting};

/// Allocation in transit to another worker or process. Dropping the value ends the allocation and
/// releases the leases.
#[derive(Debug)]
pub struct Departure {
    allocation: Box<Allocation>,
    five_tuple: FiveTuple,
}

/// Old and new name of a relay socket that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Name of the socket at the previous worker.
    pub from: RelayId,
    /// Name of the socket at this worker.
    pub to: RelayId,
}

impl Departure {
    /// Returns the relay sockets of the allocation, named as at the previous worker.
    pub fn relays(&self) -> impl Iterator<Item = RelayId> {
        self.allocation.sockets.iter().flatten().map(|socket| socket.relay)
    }

    /// Returns the allocation's connections with peers.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.allocation.connections.iter().map(|connection| connection.id)
    }

    /// Returns the id of the allocation.
    #[must_use]
    pub fn allocation(&self) -> AllocationId {
        self.allocation.id
    }

    /// Creates the departure of an allocation to another process.
    pub(crate) fn new(allocation: Allocation) -> Self {
        Self { five_tuple: allocation.path.five_tuple, allocation: Box::new(allocation) }
    }
}

/// Steps at the worker that receives the client's packets.
impl Moves<'_> {
    /// Sends a Refresh by ticket to the worker that has the allocation. The request waits for the
    /// answer.
    pub(super) fn ask_worker(
        &mut self,
        worker: WorkerId,
        request: &Request<'_>,
        refresh: TicketRefresh,
        responder: &Responder,
    ) -> Result<Verdict, Refusal> {
        let claimant = Claimant::at(request.path.five_tuple.client.ip());
        let pending = self.pending.check(Wait::Other, &claimant);
        if pending.and_then(|()| self.expected.check(&claimant)).is_err() {
            return Err(Refusal::SystemExhausted);
        }
        let now = request.now.instant;
        let waiting = PendingMove {
            responder: responder.clone(),
            path: *request.path,
            refresh: refresh.clone(),
            began: now,
            asked: now,
        };
        let key = (request.path.five_tuple, responder.transaction);
        let waiting = Waiting::Worker(Box::new(waiting));
        let slot = self.pending.take_slot(Wait::Other, &claimant);
        let pending = self.pending.insert(now, key, slot, waiting);
        let question = Box::new(Question { pending, asker: self.ids.worker(), refresh });
        self.outbox.command(Command::AskWorker { worker, question });
        self.repeat_at(now + MOVE_AGAIN_AFTER);
        Ok(Verdict::Wait)
    }

    /// Repeats questions to workers that have not answered, or could not be reached.
    pub(crate) fn repeat_moves(&mut self, now: Instant) {
        let is_due = |asked: Instant| now.saturating_since(asked) >= MOVE_AGAIN_AFTER;
        let (mut questions, mut asked_last) = (Vec::new(), Vec::new());
        for (pending, waiting) in self.pending.moves() {
            if is_due(waiting.asked) {
                waiting.asked = now;
                questions.push((pending, waiting.refresh.clone()));
            }
            asked_last.push(waiting.asked);
        }
        let asker = self.ids.worker();
        for (pending, refresh) in questions {
            // The allocation may have moved again, or ended. Any worker can answer then.
            let location = self.registry.location_of(refresh.ticket.allocation);
            let worker = location.unwrap_or(asker);
            let question = Box::new(Question { pending, asker, refresh });
            self.outbox.command(Command::AskWorker { worker, question });
        }
        let fetched: Vec<_> = self.expected.fetched().collect();
        for (five_tuple, asked) in fetched {
            if is_due(asked) {
                self.fetch(&five_tuple, now);
            }
        }
        asked_last.extend(self.expected.fetched().map(|(_, asked)| asked));
        *self.repeat_at = asked_last.into_iter().min().map(|asked| asked + MOVE_AGAIN_AFTER);
    }

    /// Responds to the client after the other worker's answer.
    pub(crate) fn worker_answered(
        &mut self,
        now: Instant,
        answer: WorkerAnswer,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let began = self.pending.move_began(answer.pending)?;
        if matches!(answer.result, Err(Refusal::MoveUnavailable))
            && now.saturating_since(began) < MOVE_WITHIN
        {
            return None;
        }
        let waiting = self.pending.take_move(answer.pending)?;
        let PendingMove { responder, path, refresh, .. } = waiting;
        let allocation = refresh.ticket.allocation;
        let Promise { granted, grant } = match answer.result {
            Ok(promise) => promise,
            Err(reason) => {
                self.outbox.refused(&responder, reason);
                let verdict = responder.error(reply, reason, |_| ());
                self.review_queue(&path.five_tuple, now);
                return Some((responder, verdict));
            }
        };
        if granted.ticket.is_some() {
            let before = self.expected.insert(ExpectedClient {
                allocation,
                path,
                grant,
                transaction: Some(responder.transaction),
                granted,
                expires: now + Duration::from_secs(granted.lifetime.into()),
                asked: None,
            });
            if let Some(before) = before {
                self.review_queue(&before, now);
            }
        }
        self.review_queue(&path.five_tuple, now);
        let verdict = respond(&responder, granted, reply);
        Some((responder, verdict))
    }

    /// Adds an arrived allocation. Returns the old and new names of its relay sockets.
    pub(crate) fn arrive(
        &mut self,
        policy: &Policy,
        now: Instant,
        departure: Departure,
    ) -> [Option<Renamed>; 2] {
        let Departure { mut allocation, five_tuple } = departure;
        let mut renamed = [None; 2];
        for (socket, renamed) in allocation.sockets.iter_mut().zip(&mut renamed) {
            if let Some(socket) = socket {
                let to = self.ids.next_relay();
                *renamed = Some(Renamed { from: socket.relay, to });
                socket.relay = to;
            }
        }
        let client = self.expected.remove(&five_tuple).filter(|client| now < client.expires);
        let from = allocation.path.five_tuple;
        // A client that is no longer expected has also left this worker, and may return with
        // another ticket.
        allocation.attached = client.is_some();
        if let Some(client) = &client {
            allocation.path = client.path;
            allocation.quota.moved_to(&client.path.five_tuple);
        }
        let mut ends = false;
        if let Some(mobility) = &mut allocation.mobility {
            mobility.next = None;
            ends = mobility.location.moved_to(self.ids.worker());
        }
        let id = allocation.id;
        let slot = self.allocations.insert_whole(*allocation);
        self.outbox.notice(Notice::AllocationMoved { id, from, to: five_tuple });
        // This worker may have applied a reload earlier, and the other worker only after the
        // departure.
        self.allocations.apply(policy, now, slot, self.outbox);
        if ends && let Some(slot) = self.allocations.of_id(id) {
            self.allocations.end(slot, now, EndReason::EndedByOperator, self.outbox);
        }
        self.review_queue(&five_tuple, now);
        renamed
    }
}

/// Steps at the worker that has the allocation.
impl Moves<'_> {
    pub(crate) fn answer_worker(
        &mut self,
        policy: &Policy,
        now: Now,
        question: Question,
    ) -> WorkerAnswer {
        let Question { pending, asker, refresh } = question;
        let id = refresh.ticket.allocation;
        let claimed = claim(policy, now, &refresh, self.allocations, self.outbox);
        let result = match claimed {
            Ok((slot, granted)) if granted.ticket.is_some() => {
                self.allocations.expect_at(slot, Next::Worker(asker, refresh.five_tuple));
                Ok(Promise { granted, grant: self.allocations.get(slot).grant.clone() })
            }
            Ok((_, granted)) => Ok(Promise { granted, grant: refresh.grant }),
            // The allocation has moved or is moving, while the question was on its way.
            Err(Refusal::BadTicket)
                if self.allocations.of_id(id).is_none()
                    && self.registry.location_of(id).is_some() =>
            {
                Err(Refusal::MoveUnavailable)
            }
            Err(reason) => Err(reason),
        };
        WorkerAnswer { pending, asker, result }
    }

    /// Withdraws the routes of an allocation before the departure. Returns false if the allocation
    /// does not depart.
    pub(crate) fn withdraw(&mut self, now: Instant, fetch: &Fetch) -> bool {
        let Some(slot) = mobile_slot(self.allocations, now, fetch.allocation) else { return false };
        let leaves = self.leaves(slot, fetch);
        if leaves {
            self.allocations.withdraw_routes(slot, self.outbox);
        }
        leaves
    }

    /// Returns true if the client of the allocation is still expected at the destination of the
    /// fetch.
    fn leaves(&self, slot: Slot, fetch: &Fetch) -> bool {
        self.allocations.get(slot).next() == Some(Next::Worker(fetch.asker, fetch.five_tuple))
    }

    pub(crate) fn depart(&mut self, fetch: &Fetch) -> Option<Departure> {
        // The client may have moved again since the routes were withdrawn. The other worker repeats
        // its fetch.
        let slot =
            self.allocations.of_id(fetch.allocation).filter(|slot| self.leaves(*slot, fetch))?;
        let allocation = Box::new(self.allocations.remove_whole(slot));
        Some(Departure { allocation, five_tuple: fetch.five_tuple })
    }

    /// Restores an allocation after a failed departure.
    pub(crate) fn take_back(&mut self, policy: &Policy, now: Instant, departure: Departure) {
        let slot = self.allocations.insert_whole(*departure.allocation);
        self.allocations.apply(policy, now, slot, self.outbox);
    }
}
