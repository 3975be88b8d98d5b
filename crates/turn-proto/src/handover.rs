//! An allocation moves from one worker to another with its client (RFC 8016). Clients are spread over the
//! workers by their 5-tuples, so whoever gets a new one is mostly somebody else's from then on.
//!
//! ```text
//! at the new worker                         at the worker that has the allocation
//! Refresh by ticket -> Question       -->   answer_worker: prolongs it, makes the next ticket
//! answers its client            <--         WorkerAnswer
//! data or a request -> Fetch          -->   withdraw, depart: routes go, then the allocation
//! arrive                        <--         Departure, with the relay sockets beside it
//! ```
//!
//! What the client sends before that waits (`move_queue.rs`). A message that gets no answer is repeated, so that
//! none is needed: each changes nothing when it comes again.
//!
//! The allocation is in exactly one place at any time, and with it its ports, its place in the quota,
//! and the 5-tuple that its client used before. See docs/adr/0007.

use alloc::boxed::Box;
use alloc::vec::Vec;

use turn_types::{AllocationId, ClientPath, FiveTuple, Instant, Now, PendingId, RelayId, WorkerId};

use crate::allocation::{Allocation, Credentials};
use crate::answer::Responder;
use crate::arrivals::Arrival;
use crate::command::Command;
use crate::limits::{MOVE_AGAIN_AFTER, MOVE_WITHIN};
use crate::mobility::Next;
use crate::notice::{EndReason, Notice, Refusal};
use crate::pending::Waiting;
use crate::policy::Policy;
use crate::registry;
use crate::request::Request;
use crate::request::mobile::{Granted, Resumption, write};
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

use core::time::Duration;

/// A Refresh by ticket, for the worker that has the allocation.
#[derive(Clone, Debug)]
pub struct Question {
    pending: PendingId,
    asker: WorkerId,
    resumption: Resumption,
}

/// What the worker that has the allocation says.
#[derive(Clone, Debug)]
pub struct WorkerAnswer {
    pending: PendingId,
    asker: WorkerId,
    result: Result<Promise, Refusal>,
}

#[derive(Clone, Debug)]
struct Promise {
    granted: Granted,
    credentials: Credentials,
}

/// An allocation is wanted where its client is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Which.
    pub allocation: AllocationId,
    /// The worker that wants it.
    pub asker: WorkerId,
    /// The client's 5-tuple there.
    pub five_tuple: FiveTuple,
}

/// An allocation on its way to another worker. Dropping it ends it and gives back what it holds.
#[derive(Debug)]
pub struct Departure {
    allocation: Box<Allocation>,
    five_tuple: FiveTuple,
}

/// Two names of one relay socket: at the worker that it came from, and here.
pub type Renamed = (RelayId, RelayId);

/// A Refresh by ticket whose allocation another worker has.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) responder: Responder,
    path: ClientPath,
    resumption: Resumption,
    /// When the client asked, and when the other worker was asked last.
    began: Instant,
    asked: Instant,
}

impl Question {
    /// The answer when the other worker cannot be asked.
    #[must_use]
    pub const fn unanswered(&self) -> WorkerAnswer {
        let Self { pending, asker, .. } = *self;
        WorkerAnswer { pending, asker, result: Err(Refusal::MoveUnavailable) }
    }
}

impl WorkerAnswer {
    /// Who asked.
    #[must_use]
    pub const fn asker(&self) -> WorkerId {
        self.asker
    }
}

impl Departure {
    /// The relay sockets that go with it, by their names at the worker that it comes from.
    pub fn relays(&self) -> impl Iterator<Item = RelayId> {
        self.allocation.halves.iter().flatten().map(|half| half.relay)
    }

    /// Which allocation it is.
    #[must_use]
    pub fn allocation(&self) -> AllocationId {
        self.allocation.id
    }
}

/// At the worker that the client comes to.
impl State {
    /// Asks the worker that has the allocation of a ticket; its client waits.
    pub(crate) fn ask_worker(
        &mut self,
        worker: WorkerId,
        request: &Request<'_>,
        resumption: Resumption,
        responder: &Responder,
    ) -> Result<Verdict, Refusal> {
        if self.pending.is_full() || self.arrivals.is_full() {
            return Err(Refusal::SystemExhausted);
        }
        let now = request.now.instant;
        let asking = Asking {
            responder: responder.clone(),
            path: *request.path,
            resumption: resumption.clone(),
            began: now,
            asked: now,
        };
        let key = (request.path.five_tuple, responder.transaction);
        let waiting = Waiting::Worker(Box::new(asking));
        let pending = self.pending.insert(now, key, waiting);
        let question = Box::new(Question { pending, asker: self.worker, resumption });
        self.outbox.command(Command::AskWorker { worker, question });
        self.repeat_moves_at(now + MOVE_AGAIN_AFTER);
        Ok(Verdict::Wait)
    }

    fn repeat_moves_at(&mut self, at: Instant) {
        self.moves_at = Some(self.moves_at.map_or(at, |before| before.min(at)));
    }

    /// Asks other workers again that have not answered, or could not be asked.
    pub(crate) fn repeat_moves(&mut self, now: Instant) {
        let is_due = |asked: Instant| now.saturating_since(asked) >= MOVE_AGAIN_AFTER;
        let (mut questions, mut asked_last) = (Vec::new(), Vec::new());
        for (pending, asking) in self.pending.all_asking() {
            if is_due(asking.asked) {
                asking.asked = now;
                questions.push((pending, asking.resumption.clone()));
            }
            asked_last.push(asking.asked);
        }
        for (pending, resumption) in questions {
            // It may have moved on since, or have ended: of that any worker can tell.
            let home = registry::home_of(&self.registry, resumption.ticket.allocation);
            let worker = home.unwrap_or(self.worker);
            let question = Box::new(Question { pending, asker: self.worker, resumption });
            self.outbox.command(Command::AskWorker { worker, question });
        }
        let fetched: Vec<_> = self.arrivals.fetched().collect();
        for (five_tuple, asked) in fetched {
            if is_due(asked) {
                self.fetch(&five_tuple, now);
            }
        }
        asked_last.extend(self.arrivals.fetched().map(|(_, asked)| asked));
        self.moves_at = asked_last.into_iter().min().map(|asked| asked + MOVE_AGAIN_AFTER);
    }

    /// The other worker has answered, and so is the client.
    pub(crate) fn worker_answered(
        &mut self,
        policy: &Policy,
        now: Instant,
        answer: WorkerAnswer,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let began = self.pending.asking(answer.pending)?.began;
        if matches!(answer.result, Err(Refusal::MoveUnavailable))
            && now.saturating_since(began) < MOVE_WITHIN
        {
            return None;
        }
        let asking = self.pending.take_asking(answer.pending)?;
        let Asking { responder, path, resumption, .. } = asking;
        let allocation = resumption.ticket.allocation;
        let Promise { granted, credentials } = match answer.result {
            Ok(promise) => promise,
            Err(reason) => {
                self.tell_refusal(&responder, reason);
                let verdict = responder.error(policy, reply, reason, |_| ());
                self.review_queue(&path.five_tuple, now);
                return Some((responder, verdict));
            }
        };
        if granted.ticket.is_some() {
            let before = self.arrivals.insert(Arrival {
                allocation,
                path,
                credentials,
                transaction: responder.transaction,
                granted,
                expires: now + Duration::from_secs(granted.lifetime.into()),
                asked: None,
            });
            if let Some(before) = before {
                self.review_queue(&before, now);
            }
        }
        self.review_queue(&path.five_tuple, now);
        let verdict = write(policy, &responder, granted, reply);
        Some((responder, verdict))
    }

    /// Asks for the allocation of a client that is expected here and was heard.
    pub(crate) fn fetch(&mut self, five_tuple: &FiveTuple, now: Instant) {
        let Some(allocation) = self.arrivals.heard(five_tuple, now) else { return };
        match registry::home_of(&self.registry, allocation) {
            Some(worker) => {
                let fetch = Fetch { allocation, asker: self.worker, five_tuple: *five_tuple };
                self.outbox.command(Command::Fetch { worker, fetch });
                self.repeat_moves_at(now + MOVE_AGAIN_AFTER);
            }
            None => self.fetch_failed(five_tuple, now),
        }
    }

    /// It cannot be fetched: it has ended, or its client was heard elsewhere since.
    pub(crate) fn fetch_failed(&mut self, five_tuple: &FiveTuple, now: Instant) {
        self.arrivals.remove(five_tuple);
        self.review_queue(five_tuple, now);
    }

    /// An allocation has come. Returns the names that its relay sockets have from now on.
    pub(crate) fn arrive(
        &mut self,
        policy: &Policy,
        now: Instant,
        departure: Departure,
    ) -> [Option<Renamed>; 2] {
        let Departure { mut allocation, five_tuple } = departure;
        let mut renamed = [None; 2];
        for (half, renamed) in allocation.halves.iter_mut().zip(&mut renamed) {
            if let Some(half) = half {
                let name = self.next_relay();
                *renamed = Some((half.relay, name));
                half.relay = name;
            }
        }
        let arrival = self.arrivals.remove(&five_tuple).filter(|arrival| now < arrival.expires);
        let from = allocation.path.five_tuple;
        // Without an arrival the client has gone from here as well, and may come by another ticket.
        allocation.attached = arrival.is_some();
        if let Some(arrival) = &arrival {
            allocation.path = arrival.path;
        }
        let mut ends = false;
        if let Some(mobility) = &mut allocation.mobility {
            mobility.next = None;
            ends = mobility.home.moved_to(self.worker);
        }
        let id = allocation.id;
        let slot = self.table.insert_whole(allocation);
        self.outbox.notice(Notice::AllocationMoved { id, from, to: five_tuple });
        // A reload may have reached this worker before, and the other one after it left.
        self.apply_to(policy, now, slot);
        if ends && let Some(slot) = self.table.of_id(id) {
            self.end(slot, now, EndReason::EndedByOperator);
        }
        self.review_queue(&five_tuple, now);
        renamed
    }
}

/// At the worker that has the allocation.
impl State {
    pub(crate) fn answer_worker(
        &mut self,
        policy: &Policy,
        now: Now,
        question: Question,
    ) -> WorkerAnswer {
        let Question { pending, asker, resumption } = question;
        let id = resumption.ticket.allocation;
        let result = match self.claim_by_ticket(policy, now, &resumption) {
            Ok((slot, granted)) if granted.ticket.is_some() => {
                self.table.expect_at(slot, Next::Worker(asker, resumption.five_tuple));
                let credentials = self.table.get(slot).credentials.clone();
                Ok(Promise { granted, credentials })
            }
            Ok((_, granted)) => {
                let credentials = Credentials::of(&resumption.who, &policy.realm);
                Ok(Promise { granted, credentials })
            }
            // It has moved on while the question was on its way, or is on its way itself.
            Err(Refusal::BadTicket)
                if self.table.of_id(id).is_none()
                    && registry::home_of(&self.registry, id).is_some() =>
            {
                Err(Refusal::MoveUnavailable)
            }
            Err(reason) => Err(reason),
        };
        WorkerAnswer { pending, asker, result }
    }

    /// Withdraws the routes of an allocation that is to leave; false if it does not.
    pub(crate) fn withdraw(&mut self, now: Instant, fetch: &Fetch) -> bool {
        let Some(slot) = self.mobile_slot(now, fetch.allocation) else { return false };
        let next = self.table.get(slot).mobility.as_ref().and_then(|mobility| mobility.next);
        let leaves = next == Some(Next::Worker(fetch.asker, fetch.five_tuple));
        if leaves {
            self.table.withdraw_routes(slot, &mut self.outbox);
        }
        leaves
    }

    pub(crate) fn depart(&mut self, fetch: &Fetch) -> Option<Departure> {
        let slot = self.table.of_id(fetch.allocation)?;
        let allocation = self.table.remove_whole(slot);
        Some(Departure { allocation, five_tuple: fetch.five_tuple })
    }

    /// It could not leave.
    pub(crate) fn take_back(&mut self, policy: &Policy, now: Instant, departure: Departure) {
        let slot = self.table.insert_whole(departure.allocation);
        self.announce(policy, now, slot);
    }
}
