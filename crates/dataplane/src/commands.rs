//! What the server asks for is done, and what it tells is heard.

use std::io;

use control::{Asked, UserLookup};
use turn_proto::{Answer, Command, Event, Notice, OpenRelayError, UserAnswer};
use turn_types::Now;

use crate::egress::Ways;
use crate::observe::Trouble;
use crate::tally::Sent;
use crate::worker::Worker;

impl Worker {
    /// Leaves nothing undone after the server was handed something: does what it asks for, hears
    /// what it tells. What it decided is sent with all that is gathered in this turn.
    pub(crate) fn settle(&mut self, now: Now) {
        let mut served = false;
        loop {
            served |= self.serve_queued(now);
            let Some(command) = self.server.poll_command() else { break };
            if served && matches!(command, Command::SetRoute(_)) {
                // What has waited goes before what the kernel takes from then on.
                self.egress.flush(&self.rx, &self.sockets);
                served = false;
            }
            if let Some(event) = self.carry_out(now, command) {
                self.hand_in(now, event);
            }
        }
        while let Some(mut notice) = self.server.poll_notice() {
            if let Notice::AllocationEnded(record) = &mut notice {
                self.fast_path.complete(record);
            }
            self.observer.note(now.instant, &notice);
        }
        while let Some(fetch) = self.leaving.pop() {
            self.hand_over(now, fetch);
        }
    }

    /// Hands the server an event, and gathers its answer to whoever waited for it.
    pub(crate) fn hand_in(&mut self, now: Now, event: Event) {
        self.egress.make_room(&self.rx, &self.sockets);
        if let Some(answer) = self.server.handle_event(now, event, self.egress.reply_buffer()) {
            if let Some(stream) = self.streams.get_mut(answer.to.socket)
                && !answer.held
            {
                stream.waiting = stream.waiting.saturating_sub(1);
            }
            let sent = if answer.error { Sent::LateError } else { Sent::LateSuccess };
            self.send_answer(answer, sent);
            if answer.held {
                self.release(answer.to.socket);
            }
        }
    }

    /// Sends what the server has written for this answer.
    pub(crate) fn send_answer(&mut self, answer: Answer, sent: Sent) {
        let ways = Ways {
            sockets: &self.sockets,
            streams: &mut self.streams,
            associations: &mut self.associations,
        };
        self.egress.answer(answer, sent, ways);
    }

    fn carry_out(&mut self, now: Now, command: Command) -> Option<Event> {
        match command {
            Command::FindUser { pending, realm, user } => {
                let lookup = UserLookup { worker: self.id, pending, realm, user };
                let answer = match self.directory.find(lookup) {
                    Asked::Answered(answer) => answer,
                    Asked::Refused => UserAnswer::Unavailable,
                    Asked::Taken => return None,
                };
                Some(Event::UserFound { pending, answer })
            }
            Command::OpenRelay { pending, relay, at } => {
                let opened = self.sockets.open_relay(relay, at);
                if let Err(error) = &opened
                    && error.kind() != io::ErrorKind::AddrInUse
                {
                    self.observer.warn(
                        now.instant,
                        Trouble::RelaySocket,
                        &format_args!("{at}: {error}"),
                    );
                }
                let result = opened.map_err(|error| open_error(&error));
                Some(Event::RelayOpened { pending, relay, result })
            }
            Command::CloseRelay { relay } => {
                // Something may be gathered that is to be sent by it.
                self.egress.flush(&self.rx, &self.sockets);
                self.sockets.close_relay(relay);
                None
            }
            Command::SetRoute(route) => {
                let counters = self.observer.counters();
                let set = self.fast_path.set(now.instant, &route, &mut self.server, counters);
                match set {
                    Ok(()) if self.fast_path.takes_at_tc(&route) => {
                        let server = route.five_tuple.server;
                        self.sockets.routed_at_tc(server, route.relay, now.instant);
                    }
                    Ok(()) => {}
                    Err(error) => {
                        self.observer.warn(now.instant, Trouble::KernelPath, &error);
                    }
                }
                None
            }
            Command::RemoveRoute(id) => {
                self.fast_path.remove(id, &mut self.server, self.observer.counters());
                None
            }
            Command::AskWorker { worker, question } => self.ask_worker(now, worker, *question),
            Command::Fetch { worker, fetch } => {
                self.ask_for_allocation(now, worker, fetch);
                None
            }
            Command::UserOverdue { pending } => {
                Some(Event::UserFound { pending, answer: UserAnswer::Unavailable })
            }
            Command::HandOver(fetch) => {
                self.leaving.push(fetch);
                None
            }
            Command::Tcp(command) => self.carry_out_tcp(command),
        }
    }

    /// Takes over a part of what the kernel relayed.
    fn sweep(&mut self, now: Now) {
        self.fast_path.sweep(now.instant, &mut self.server, self.observer.counters());
        if self.fast_path.flows() == 0 {
            self.sockets.unrouted();
        }
    }

    /// Lets the server do what has become due, if anything has.
    pub(crate) fn serve_timeouts(&mut self) {
        let now = self.now;
        if self.fast_path.next_sweep().is_some_and(|due| due <= now.instant) {
            self.sweep(now);
        }
        if self.server.poll_timeout().is_some_and(|due| due <= now.instant) {
            self.server.handle_timeout(now);
            self.settle(now);
        }
    }
}

fn open_error(error: &io::Error) -> OpenRelayError {
    if error.kind() == io::ErrorKind::AddrInUse {
        OpenRelayError::PortTaken
    } else {
        OpenRelayError::Exhausted
    }
}
