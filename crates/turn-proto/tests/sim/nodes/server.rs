//! Server, and the quality of its environment.

use std::time::Duration;

use netsim::{Body, Chance, Outbox, Packet, Rng};
use turn_proto::{Command, Event, OpenRelayError, Policy, UserAnswer};
use turn_types::{Instant, Now, PendingId};

use super::hostile::SharedTap;
use crate::sim::driver::{Driver, Sent, icmp_report};
use crate::sim::setup::{listeners, look_up};

/// Behaviour of the server's environment.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The longest that a look-up or the opening of a socket takes.
    pub delay_max: Duration,
    /// Chance that another process owns a port.
    pub port_taken: Chance,
    /// No socket can be opened.
    pub exhausted: Chance,
    /// Chance that the user database is unavailable.
    pub unavailable: Chance,
    /// No answer ever comes.
    pub silent: Chance,
}

pub struct ServerNode {
    pub driver: Driver,
    surroundings: Surroundings,
    rng: Rng,
    tap: SharedTap,
    /// Results of commands that are on their way.
    answers: Vec<(Instant, Event)>,
    pub violation: Option<String>,
}

impl ServerNode {
    pub fn new(policy: Policy, surroundings: Surroundings, mut rng: Rng, tap: SharedTap) -> Self {
        let driver = Driver::new(policy, rng.seed_32());
        Self { driver, surroundings, rng, tap, answers: Vec::new(), violation: None }
    }

    pub fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        self.tap.borrow_mut().see(&packet);
        let listener = listeners().iter().position(|listener| listener.0 == packet.dst);
        let sent = match (&packet.body, listener) {
            (Body::Udp(payload), Some(listener)) => {
                let path = Driver::path(packet.src, listener);
                self.driver.client(now, &path, payload)
            }
            (Body::Udp(payload), None) if self.driver.is_open(packet.dst) => {
                self.driver.peer(now, packet.dst, packet.src, payload)
            }
            (Body::Udp(payload), None) => {
                self.driver.late(now, packet.dst, packet.src, payload);
                packet.port_unreachable().into_iter().for_each(|error| out.send(error));
                None
            }
            (Body::Icmp(icmp), _) => {
                let report = icmp_report(icmp.about_dst, icmp.kind, icmp.code, icmp.data);
                self.driver.icmp(now, icmp.about_src, icmp.about_dst, report)
            }
        };
        self.after(now, sent, out);
    }

    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.driver.server.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.driver.timeout(now);
            self.after(now, None, out);
        }
        while let Some(at) = self.answers.iter().position(|(at, _)| *at <= now.instant) {
            let (_, event) = self.answers.remove(at);
            let sent = self.driver.answer(now, event);
            self.after(now, sent, out);
        }
    }

    pub fn next_wake(&self) -> Option<Instant> {
        let answers = self.answers.iter().map(|(at, _)| *at).min();
        [answers, self.driver.server.poll_timeout()].into_iter().flatten().min()
    }

    /// Acts on the server from outside: an operator.
    pub fn operate(&mut self, now: Now, act: impl FnOnce(&mut Driver), out: &mut Outbox) {
        act(&mut self.driver);
        self.after(now, None, out);
    }

    fn after(&mut self, now: Now, sent: Option<Sent>, out: &mut Outbox) {
        if let Some(Sent { from, to, payload, dont_fragment }) = sent {
            out.send(Packet { src: from, dst: to, body: Body::Udp(payload), dont_fragment });
        }
        for command in std::mem::take(&mut self.driver.commands) {
            let at = now.instant + self.rng.duration_below(self.surroundings.delay_max);
            if !self.rng.happens(self.surroundings.silent) {
                let answer = self.answer_to(command);
                self.answers.extend(answer.map(|answer| (at, answer)));
            }
        }
        if let Err(why) = self.driver.audit(now.instant) {
            self.violation.get_or_insert(why);
        }
    }

    fn answer_to(&mut self, command: Command) -> Option<Event> {
        let Surroundings { port_taken, exhausted, unavailable, .. } = self.surroundings;
        match command {
            Command::FindUser { pending, user, .. } => {
                let answer = if self.rng.happens(unavailable) {
                    UserAnswer::Unavailable
                } else {
                    look_up(&user)
                };
                Some(Event::UserFound { pending, answer })
            }
            Command::OpenRelay { pending, relay, .. } => {
                let result = if self.rng.happens(port_taken) {
                    Err(OpenRelayError::PortTaken)
                } else if self.rng.happens(exhausted) {
                    Err(OpenRelayError::Exhausted)
                } else {
                    Ok(())
                };
                Some(Event::RelayOpened { pending, relay, result })
            }
            Command::CloseRelay { .. }
            | Command::Authorize { .. }
            | Command::SetRoute(_)
            | Command::RemoveRoute(_)
            | Command::SuspendRoutes
            | Command::ResumeRoutes
            | Command::AskWorker { .. }
            | Command::Fetch { .. }
            | Command::HandOver(_)
            | Command::Tcp(_) => None,
            Command::UserOverdue { pending } => {
                Some(Event::UserFound { pending, answer: UserAnswer::Unavailable })
            }
        }
    }

    /// Delivers a result for a request that never existed, as a confused user database would.
    pub fn confuse(&mut self, now: Now, pending: PendingId, out: &mut Outbox) {
        let answer = UserAnswer::Unknown;
        let sent = self.driver.answer(now, Event::UserFound { pending, answer });
        self.after(now, sent, out);
    }
}
