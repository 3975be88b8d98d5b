//! Allocations move between workers with their clients (RFC 8016; see `turn_proto`'s `handover.rs`). What
//! is asked and told goes through the workers' doors: a full one is an answer, too, and an allocation that
//! cannot leave stays.

use turn_proto::{
    Answer, Departure, EndReason, Event, Fetch, Question, QueuedPacket, Verdict, WorkerAnswer,
};
use turn_types::{Now, RelayId, WorkerId};

use crate::associations::is_association;
use crate::doors::Parcel;
use crate::egress::Back;
use crate::limits::HANDED_ROUNDS;
use crate::observe::Trouble;
use crate::relay_sockets::RelaySocket;
use crate::streams::is_stream;
use crate::tally::Sent;
use crate::worker::Worker;

/// Relay sockets on their way, by the names that they had.
type Luggage = Vec<(RelayId, RelaySocket)>;

/// The messages by which an allocation moves, in their order.
#[derive(Debug)]
pub(crate) enum Move {
    /// A client has shown a ticket.
    Ask(Box<Question>),
    /// What the worker says that has the allocation.
    Answer(Box<WorkerAnswer>),
    /// The client has been heard: the allocation is to come.
    Fetch(Fetch),
    /// It does not.
    FetchFailed(Fetch),
    /// It comes, with its relay sockets.
    Arrive(Box<Departure>, Luggage),
}

impl Worker {
    /// Passes a client's question on to the worker that has its allocation; the answer if that cannot be.
    pub(crate) fn ask_worker(
        &mut self,
        now: Now,
        to: WorkerId,
        question: Question,
    ) -> Option<Event> {
        let unanswered = question.unanswered();
        let asked = self.tell(now, to, Move::Ask(Box::new(question)));
        asked.is_err().then(|| Event::WorkerAnswered(Box::new(unanswered)))
    }

    /// Asks for an allocation; the answer if that cannot be.
    pub(crate) fn ask_for_allocation(&mut self, now: Now, from: WorkerId, fetch: Fetch) {
        // If it is lost the server asks again.
        drop(self.tell(now, from, Move::Fetch(fetch)));
    }

    /// What another worker asks or tells.
    pub(crate) fn serve_move(&mut self, now: Now, message: Move) {
        match message {
            Move::Ask(question) => {
                let answer = self.server.answer_worker(now, *question);
                self.settle(now);
                self.answer(now, answer);
            }
            Move::Answer(answer) => {
                self.hand_in(now, Event::WorkerAnswered(answer));
                self.settle(now);
            }
            Move::Fetch(fetch) => self.hand_over(now, fetch),
            Move::FetchFailed(fetch) => {
                self.hand_in(now, Event::FetchFailed(fetch));
                self.settle(now);
            }
            Move::Arrive(departure, luggage) => self.arrive(now, *departure, luggage),
        }
    }

    fn answer(&mut self, now: Now, answer: WorkerAnswer) {
        // If it is lost the other worker asks again, and is answered alike.
        drop(self.tell(now, answer.asker(), Move::Answer(Box::new(answer))));
    }

    /// Lets an allocation go to the worker where its client is.
    pub(crate) fn hand_over(&mut self, now: Now, fetch: Fetch) {
        if !self.server.withdraw(now, &fetch) {
            drop(self.tell(now, fetch.asker, Move::FetchFailed(fetch)));
            return;
        }
        // Routes go first: what they carried is counted for it while it is here.
        self.settle(now);
        // What the kernel wrote by them waits in the ring, and is for its client.
        for _ in 0..HANDED_ROUNDS {
            if !self.receive_handed() {
                break;
            }
        }
        let Some(departure) = self.server.depart(&fetch) else { return };
        // Something may be gathered that is to be sent by its sockets.
        self.egress.flush(&self.rx, &self.sockets);
        let relays: Vec<RelayId> = departure.relays().collect();
        let sockets = relays.into_iter().filter_map(|relay| {
            let socket = self.sockets.take_relay(relay)?;
            Some((relay, socket))
        });
        let luggage: Luggage = sockets.collect();
        let message = Move::Arrive(Box::new(departure), luggage);
        if let Err(Move::Arrive(departure, luggage)) = self.tell(now, fetch.asker, message) {
            self.take_back(now, *departure, luggage);
        }
    }

    /// An allocation that could not leave.
    fn take_back(&mut self, now: Now, departure: Departure, luggage: Luggage) {
        let id = departure.allocation();
        let mut kept = true;
        for (relay, socket) in luggage {
            kept &= self.sockets.adopt_relay(relay, socket).is_ok();
        }
        self.server.take_back(now, departure);
        if !kept {
            self.server.end_allocation(now, id, EndReason::SystemExhausted);
        }
        self.settle(now);
    }

    /// An allocation that has come.
    fn arrive(&mut self, now: Now, departure: Departure, mut sockets: Luggage) {
        let id = departure.allocation();
        let mut kept = true;
        for (before, name) in self.server.arrive(now, departure).into_iter().flatten() {
            let Some(at) = sockets.iter().position(|(relay, _)| *relay == before) else { continue };
            let (_, socket) = sockets.swap_remove(at);
            if let Err(error) = self.sockets.adopt_relay(name, socket) {
                self.observer.warn(now.instant, Trouble::RelaySocket, &error);
                kept = false;
            }
        }
        if !kept {
            // Nothing from its peers would be heard.
            self.server.end_allocation(now, id, EndReason::SystemExhausted);
        }
        self.settle(now);
    }

    /// Serves packets that have waited for their allocations, in their order. Returns whether there were any.
    pub(crate) fn serve_queued(&mut self, now: Now) -> bool {
        let mut served = false;
        while let Some(packet) = self.server.poll_queued() {
            self.serve_queued_packet(now, &packet);
            served = true;
        }
        served
    }

    fn serve_queued_packet(&mut self, now: Now, packet: &QueuedPacket) {
        let QueuedPacket { path, meta, bytes, has_waited } = packet;
        self.egress.make_room(&self.rx, &self.sockets);
        let reply = self.egress.reply_buffer();
        let verdict = self.server.handle_client(now, path, *meta, bytes, reply);
        let id = path.socket;
        if let Some(stream) = self.streams.get_mut(id)
            && verdict != Verdict::Wait
            && verdict != Verdict::Queued
        {
            // It was counted when it came.
            stream.waiting = stream.waiting.saturating_sub(1);
        }
        if *has_waited {
            // Its fate is counted; this is its answer.
            if let Verdict::Reply { len, error } = verdict {
                let sent = if error { Sent::LateError } else { Sent::LateSuccess };
                self.send_answer(Answer { to: *path, len, error, held: false }, sent);
            }
            return;
        }
        let Self { egress, rx, sockets, streams, associations, .. } = self;
        let back = if is_stream(id) {
            Back::Stream(streams, id)
        } else if is_association(id) {
            Back::Association((associations, sockets), id)
        } else if let Some(listener) = sockets.listener(id) {
            Back::Datagram(listener.flow_back(path))
        } else {
            unreachable!("the server names sockets by which clients came");
        };
        egress.client_bytes(verdict, bytes, (rx, sockets, back));
    }

    /// Hands a message to another worker; it comes back if it is not taken.
    fn tell(&mut self, now: Now, to: WorkerId, message: Move) -> Result<(), Move> {
        let handed = self.doors.hand_over(to, Parcel::Move(message));
        if handed.is_err() {
            self.observer.warn(now.instant, Trouble::Move, &format_args!("worker {}", to.0));
        }
        match handed {
            Err(Parcel::Move(message)) => Err(message),
            Ok(()) | Err(Parcel::Connection(_)) => Ok(()),
        }
    }
}
