//! Messages of other workers: ConnectionBinds for peers' connections of this worker (RFC 6062), and
//! moving clients (RFC 8016; see `worker_move.rs` of `turn_proto`).
//!
//! If a queue is full, the client of a ConnectionBind gets an error response. An allocation that
//! cannot be moved remains at this worker.

use control::StreamEnd;
use turn_proto::{BindRequest, Departure, EndReason, Event, Fetch, Renamed};
use turn_types::{RelayId, WorkerId};

use super::{Clients, Worker};
use crate::context::Context;
use crate::io::Net;
use crate::limits::{ACCEPTS_PER_TURN, RING_ROUNDS_PER_TURN, SHARED_ROUNDS_PER_MOVE};
use crate::report::{Condition, Sent};
use crate::stream::Stream;
use crate::workers::{MovedSockets, WorkerMessage};

impl<N: Net> Worker<N> {
    /// Serves some messages of other workers.
    pub(super) fn serve_messages(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(message) = self.messages.take() else { return };
            self.serve_message(message);
            self.settle();
        }
        // More messages may wait.
        self.is_busy = true;
    }

    /// Serves all waiting messages.
    pub(super) fn serve_all_messages(&mut self) {
        while let Some(message) = self.messages.take() {
            self.serve_message(message);
            self.settle();
        }
    }

    fn serve_message(&mut self, message: WorkerMessage<N>) {
        match message {
            WorkerMessage::Bind(stream, request) => self.bind(stream, request),
            // Nothing changes during the pause. The other worker repeats the message, or pauses as
            // well.
            WorkerMessage::Ask(_) | WorkerMessage::Answer(_) | WorkerMessage::FetchFailed(_)
                if self.handover.is_paused() => {}
            WorkerMessage::Fetch(fetch) if self.handover.is_paused() => {
                drop(self.send_message(fetch.asker, WorkerMessage::FetchFailed(fetch)));
            }
            WorkerMessage::Ask(question) => {
                let answer = self.cx.server.answer_worker(self.cx.now, *question);
                self.settle();
                // If the answer is lost, the other worker repeats the question and gets an equal
                // answer.
                let asker = answer.asker();
                drop(self.send_message(asker, WorkerMessage::Answer(Box::new(answer))));
            }
            WorkerMessage::Answer(answer) => self.hand_in(Event::WorkerAnswered(answer)),
            WorkerMessage::Fetch(fetch) => self.move_allocation(fetch),
            WorkerMessage::FetchFailed(fetch) => self.hand_in(Event::FetchFailed(fetch)),
            WorkerMessage::Arrive(departure, sockets) => self.arrive(*departure, sockets),
            WorkerMessage::Expect(clients) => self.expect(clients),
            WorkerMessage::Pause(reply) => {
                self.pause();
                reply(());
            }
            WorkerMessage::Export(reply) => reply(self.export()),
            WorkerMessage::LastProgress(ends, reply) => reply(self.last_progress(ends)),
            WorkerMessage::RollBack => self.roll_back(),
            WorkerMessage::Commit => self.commit(),
            WorkerMessage::Copy(to, recipient) => self.copy_to(to, recipient),
        }
    }

    /// Sends a message to another worker.
    ///
    /// # Errors
    /// The message is returned if the worker does not exist or has stopped, or if the queue is
    /// full.
    pub(super) fn send_message(
        &mut self,
        to: WorkerId,
        message: WorkerMessage<N>,
    ) -> Result<(), WorkerMessage<N>> {
        let sent = self.workers.send(to, message);
        if sent.is_err() {
            let details = format_args!("worker {}", to.0);
            self.cx.observer.warn(self.cx.now.instant, Condition::Move, &details);
        }
        sent
    }

    /// Passes a ConnectionBind with the client's connection to the worker of the peer's connection.
    pub(super) fn bind_at_owner(&mut self, request: Box<BindRequest>) {
        let id = request.path().socket;
        let Some(stream) = self.streams.take(&mut self.cx, id) else { return };
        let owner = request.owner();
        if owner == self.cx.worker || !self.workers.reaches(owner) {
            return self.bind(stream, request);
        }
        let sent = self.workers.send(owner, WorkerMessage::Bind(stream, request));
        if let Err(WorkerMessage::Bind(stream, mut request)) = sent {
            let Self { cx, streams, dtls, .. } = self;
            let Some(id) = streams.adopt(cx, stream, &mut request) else { return };
            if let Some(answer) = cx.server.turn_bind_away(&request, &mut cx.reply) {
                cx.answer(&mut Clients { streams, dtls }, answer, Sent::LateError);
            }
            self.streams.release(&mut self.cx, id);
        }
    }

    /// Responds to a ConnectionBind, and pipes the client's connection to the peer's.
    fn bind(&mut self, stream: Box<Stream<N>>, mut request: Box<BindRequest>) {
        let Self { cx, streams, dtls, tcp_relay, .. } = self;
        let Some(id) = streams.adopt(cx, stream, &mut request) else { return };
        let Some(answer) = cx.server.bind_connection(cx.now, &request, &mut cx.reply) else {
            return streams.close(cx, id, StreamEnd::ByUs);
        };
        let sent = if answer.error { Sent::LateError } else { Sent::LateSuccess };
        cx.answer(&mut Clients { streams, dtls }, answer, sent);
        if answer.error {
            streams.release(cx, id);
        } else {
            tcp_relay.bind(cx, streams, id, request.connection());
        }
    }

    /// Moves an allocation to the worker of the allocation's client.
    pub(super) fn move_allocation(&mut self, fetch: Fetch) {
        if !self.cx.server.withdraw(self.cx.now, &fetch) {
            drop(self.send_message(fetch.asker, WorkerMessage::FetchFailed(fetch)));
            return;
        }
        // Routes are removed first: this worker credits the routes' last counters.
        self.settle();
        // Datagrams of these routes in the ring are for the client at this worker.
        for _ in 0..RING_ROUNDS_PER_TURN {
            if !self.receive_from_ring() {
                break;
            }
        }
        let relays: Vec<RelayId> = self.cx.server.relays_of(fetch.allocation).collect();
        let parted = self.part_from_shared_sockets(&relays);
        let departure = if parted { self.cx.server.depart(&fetch) } else { None };
        let Some(departure) = departure else {
            relays.iter().for_each(|relay| self.cx.sockets.unpart(*relay));
            if !parted {
                drop(self.send_message(fetch.asker, WorkerMessage::FetchFailed(fetch)));
            }
            return;
        };
        // Some gathered datagrams may leave through these sockets.
        self.cx.flush();
        let sockets: MovedSockets<N> = relays
            .into_iter()
            .filter_map(|relay| Some((relay, self.cx.sockets.take_relay(&self.cx.net, relay)?)))
            .collect();
        let message = WorkerMessage::Arrive(Box::new(departure), sockets);
        if let Err(WorkerMessage::Arrive(departure, sockets)) =
            self.send_message(fetch.asker, message)
        {
            let cx = &mut self.cx;
            let mut kept = true;
            for (relay, socket) in sockets {
                kept &= cx.sockets.adopt_relay(&cx.net, relay, socket).is_ok();
            }
            self.keep(*departure, kept);
        }
    }

    /// Opens dedicated sockets for those `relays` that share a socket. Datagrams that the shared
    /// socket has received already are for the client at this worker. Returns false if no
    /// descriptors are left: the allocation does not move.
    pub(super) fn part_from_shared_sockets(&mut self, relays: &[RelayId]) -> bool {
        for relay in relays {
            let Context { sockets, net, observer, now, .. } = &mut self.cx;
            match sockets.part(net, *relay) {
                Ok(None) => {}
                Ok(Some(shared)) => {
                    for _ in 0..SHARED_ROUNDS_PER_MOVE {
                        if !self.receive_from_relay(shared) {
                            break;
                        }
                    }
                }
                Err(error) => {
                    observer.warn(now.instant, Condition::RelaySocket, &error);
                    return false;
                }
            }
        }
        true
    }

    /// Restores an allocation after a failed move. If `sockets` is false, relay sockets were lost,
    /// and the allocation is terminated.
    pub(super) fn keep(&mut self, departure: Departure, sockets: bool) {
        let (cx, id) = (&mut self.cx, departure.allocation());
        cx.server.take_back(cx.now, departure);
        let relay = cx.server.relays_of(id).next();
        if let Some(relay) = relay {
            cx.own_relays(relay);
        }
        if !sockets {
            cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
        }
        self.settle();
    }

    /// Adopts an allocation of another worker.
    fn arrive(&mut self, departure: Departure, mut sockets: MovedSockets<N>) {
        let (cx, id) = (&mut self.cx, departure.allocation());
        let mut kept = true;
        for Renamed { from, to } in cx.server.arrive(cx.now, departure).into_iter().flatten() {
            let Some(at) = sockets.iter().position(|(number, _)| *number == from) else {
                continue;
            };
            let (_, socket) = sockets.swap_remove(at);
            if let Err(error) = cx.sockets.adopt_relay(&cx.net, to, socket) {
                cx.observer.warn(cx.now.instant, Condition::RelaySocket, &error);
                kept = false;
            }
            cx.own_relays(to);
        }
        if !kept {
            // Datagrams of the allocation's peers could not be received.
            cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
        }
    }
}
