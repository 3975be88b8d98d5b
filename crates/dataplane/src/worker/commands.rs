//! Executes the server's commands through the parts, and counts and logs the server's notices.

use std::io;

use control::{Asked, AuthorizationRequest, Histogram, UserLookup};
use turn_proto::{
    Answer, Command, EndReason, Event, Notice, OpenRelayError, QueuedPacket, TcpCommand,
    UserAnswer, Verdict,
};
use turn_types::{RelayId, RelayedAddr};

use super::handover::Phase;
use super::{Clients, Worker};
use crate::context::{Context, Output};
use crate::io::Net;
use crate::report::{Condition, Sent};
use crate::stream::PipeEvent;
use crate::workers::WorkerMessage;

impl<N: Net> Worker<N> {
    /// Completes all effects of packets and events: executes commands, reports notices, and moves
    /// allocations. Answers are sent with the other datagrams of this iteration.
    pub(super) fn settle(&mut self) {
        loop {
            self.settle_pipes();
            self.serve_queued();
            let Some(command) = self.cx.server.poll_command() else { break };
            if matches!(command, Command::SetRoute(_)) {
                // Earlier packets, such as queued packets and the first packet of a channel, are
                // sent before the packets that the kernel relays.
                self.cx.flush();
            }
            if let Some(event) = self.carry_out(command) {
                self.hand_in(event);
            }
        }
        while let Some(notice) = self.cx.server.poll_notice() {
            self.note(notice);
        }
        if self.handover.is_paused() {
            // The other worker may have been exported already.
            self.leaving.clear();
        }
        while let Some(fetch) = self.leaving.pop() {
            self.move_allocation(fetch);
        }
    }

    fn note(&mut self, mut notice: Notice) {
        let Self { cx, offload, handover, .. } = self;
        if let Notice::AllocationEnded(record) = &mut notice {
            // Before the commit, a session record would be wrong after a rollback.
            if let Phase::Importing(import) = &mut handover.phase {
                import.ended.insert(record.id, record.clone());
                return;
            }
            if let Some((EndReason::EndedByOperator | EndReason::Revoked, _)) = record.end {
                handover.note_removed([record.id]);
            }
            if let Some(late) = offload.complete(record) {
                cx.server.carried_late(&record.five_tuple, &late);
            }
        }
        cx.observer.note(cx.now.instant, &notice);
    }

    /// Passes an event to the server, and sends the waiting client the resulting answer.
    pub(super) fn hand_in(&mut self, event: Event) {
        let Self { cx, streams, dtls, .. } = self;
        // An Allocate gets the response when the last relay socket is open.
        let (since, opened) = if let Event::RelayOpened { pending, relay, .. } = &event {
            (cx.server.waits_since(*pending), Some(*relay))
        } else {
            (None, None)
        };
        let Some(answer) = cx.server.handle_event(cx.now, event, &mut cx.reply) else { return };
        if let Some(relay) = opened {
            cx.own_relays(relay);
        }
        if let Some(since) = since.filter(|_| !answer.error) {
            // Opening sockets takes most of the time, within this iteration.
            let took = cx.net.instant().saturating_since(since);
            cx.observer.record_time(Histogram::Allocate, took);
        }
        if !answer.held {
            streams.answered(answer.to.socket);
        }
        let sent = if answer.error { Sent::LateError } else { Sent::LateSuccess };
        cx.answer(&mut Clients { streams, dtls }, answer, sent);
        if answer.held {
            streams.release(cx, answer.to.socket);
        }
    }

    fn settle_pipes(&mut self) {
        let Self { cx, streams, tcp_relay, .. } = self;
        // Before the commit, the peer's connection belongs to the predecessor.
        while !streams.is_before_commit()
            && let Some(event) = streams.pop_pipe_event()
        {
            match event {
                PipeEvent::Written(connection) => tcp_relay.update(cx, streams, connection),
                PipeEvent::Closed(connection) => tcp_relay.client_closed(cx, connection),
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        let Self { cx, offload, .. } = self;
        match command {
            Command::FindUser { pending, client, has_allocation, realm, user } => {
                let (worker, realm) = (cx.worker, realm.into());
                let lookup = UserLookup { worker, pending, client, has_allocation, realm, user };
                let answer = match self.directory.find(lookup) {
                    Asked::Answered(answer) => answer,
                    Asked::Refused => UserAnswer::Overloaded,
                    Asked::Taken => return None,
                };
                return Some(Event::UserFound { pending, answer });
            }
            Command::Authorize { pending, applicant } => {
                let worker = cx.worker;
                let request = AuthorizationRequest { worker, pending, applicant: *applicant };
                let answer = self.authorizer.ask(request)?;
                return Some(Event::Authorized { pending, answer });
            }
            Command::UserOverdue { pending } => {
                cx.lookup_ended(pending);
                return Some(Event::UserFound { pending, answer: UserAnswer::Unavailable });
            }
            Command::OpenRelay { pending, relay, at } => {
                let result = open_relay(cx, relay, at);
                return Some(Event::RelayOpened { pending, relay, result });
            }
            Command::CloseRelay { relay } => {
                // Some gathered datagrams may leave through this socket.
                cx.flush();
                cx.sockets.close_relay(relay);
                self.tcp_relay.close_relay(relay);
            }
            Command::SetRoute(route) => {
                let (now, counters) = (cx.now.instant, cx.observer.counters());
                match offload.set(now, &route, &mut cx.server, counters) {
                    Ok(()) if offload.takes_at_tc(&route) => {
                        cx.sockets.routed_at_tc(route.five_tuple.server, route.relay, now);
                    }
                    Ok(()) => {}
                    Err(error) => cx.observer.warn(now, Condition::KernelPath, &error),
                }
            }
            Command::RemoveRoute(id) => {
                offload.remove(id, &mut cx.server, cx.observer.counters());
            }
            Command::SuspendRoutes => offload.suspend(),
            Command::ResumeRoutes => offload.resume(cx.now.instant),
            Command::AskWorker { worker, question } => {
                let unanswered = question.unanswered();
                let asked = self.send_message(worker, WorkerMessage::Ask(question));
                return asked.is_err().then(|| Event::WorkerAnswered(Box::new(unanswered)));
            }
            // The server repeats the command for an allocation if the message is lost.
            Command::Fetch { worker, fetch } => {
                drop(self.send_message(worker, WorkerMessage::Fetch(fetch)));
            }
            Command::HandOver(fetch) => self.leaving.push(fetch),
            Command::Tcp(command) => return self.carry_out_tcp(command),
        }
        None
    }

    fn carry_out_tcp(&mut self, command: TcpCommand) -> Option<Event> {
        let Self { cx, streams, tcp_relay, .. } = self;
        match command {
            TcpCommand::Listen { pending, relay, at } => {
                let result = tcp_relay.listen(cx, relay, at);
                Some(Event::RelayOpened { pending, relay, result })
            }
            TcpCommand::Connect { pending, connection, relay, peer } => {
                tcp_relay.connect(cx, (pending, connection), relay, peer)
            }
            TcpCommand::Close { connection } => tcp_relay.close_peer(cx, streams, connection),
            TcpCommand::Bind(request) => {
                self.bind_at_owner(request);
                None
            }
        }
    }

    /// Serves packets that have waited for their allocations, oldest first.
    fn serve_queued(&mut self) {
        while let Some(packet) = self.cx.server.poll_queued() {
            self.serve_queued_packet(&packet);
        }
    }

    pub(super) fn serve_queued_packet(&mut self, packet: &QueuedPacket) {
        let QueuedPacket { path, meta, bytes, has_waited } = packet;
        let Self { cx, streams, dtls, .. } = self;
        let verdict = cx.server.handle_client(cx.now, path, *meta, bytes, &mut cx.reply);
        if verdict != Verdict::Wait && verdict != Verdict::Queued {
            streams.answered(path.socket);
        }
        let mut clients = Clients { streams, dtls };
        if *has_waited {
            // The fate of the packet is already counted, so the reply is a late answer.
            if let Verdict::Reply { len, error } = verdict {
                let sent = if error { Sent::LateError } else { Sent::LateSuccess };
                cx.answer(&mut clients, Answer { to: *path, len, error, held: false }, sent);
            }
            return;
        }
        let Context { egress, rx, sockets, reply, .. } = cx;
        if let Some(written) = egress.client_bytes(verdict, bytes, (rx, sockets)) {
            let bytes = &reply[..written.len];
            let output = Output { egress, rx, sockets };
            output.reply(&mut clients, path, bytes, written.sent);
        }
    }
}

/// Opens a UDP relay socket.
fn open_relay<N: Net>(
    cx: &mut Context<N>,
    relay: RelayId,
    at: RelayedAddr,
) -> Result<(), OpenRelayError> {
    let Context { net, sockets, observer, now, server, .. } = cx;
    let of_prefix = server.has_prefix_of(at);
    sockets.open_relay(net, relay, at, of_prefix).map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            return OpenRelayError::PortTaken;
        }
        if error.kind() == io::ErrorKind::AddrNotAvailable {
            // The monitor of the host's addresses logs the missing address.
            return OpenRelayError::AddressAbsent;
        }
        let details = format_args!("{at}: {error}");
        observer.warn(now.instant, Condition::RelaySocket, &details);
        OpenRelayError::Exhausted
    })
}
