//! A thread that keeps a number of exchanges going: each on a socket or a connection of its own,
//! one after the other.
//!
//! ```text
//! allocation:  Allocate → 401 → Allocate with credentials → success → Refresh 0 → success
//! binding:     Binding → success
//! ```
//!
//! Every allocation is requested by a new client, so each costs the server a challenge and the
//! look-up of the user. Each has a port of its own: servers may keep state of a released allocation
//! for a while and refuse another one from the same port (coturn does). Over TCP, TLS and DTLS each
//! makes a connection first, which is part of the exchange; bindings share one.

use std::time::Duration;

use anyhow::{Context as _, Result};
use client_driver::{Endpoint, Link, RECEIVE_BYTES, Wire};
use linux_net::{Clock, Epoll, Events, random_bytes};
use turn_client::{Client, ClientConfig, Event};
use turn_types::{Instant, IpFamily};

use super::tally::Tally;
use super::{Kind, RequestSpec, ports};
use crate::session::{SessionError, allocate, client_config};

/// Events taken per wait.
const EVENTS: usize = 256;

/// Interval of checks for retransmissions, well below the first one's half second.
const TIMERS: Duration = Duration::from_millis(20);

/// Time for exchanges to end after the measured time.
const GRACE: Duration = Duration::from_secs(2);

/// Failure of exchanges that did not end by then.
const UNFINISHED: &str = "not answered by the end";

/// Failure of exchanges at a fixed rate without a free slot.
const NOT_STARTED: &str = "not started: as many as --in-flight allows were waiting";

/// The measured time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) end: Instant,
}

impl Window {
    pub(super) fn contains(self, at: Instant) -> bool {
        self.start <= at && at < self.end
    }
}

/// Share of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The numbers of its clients begin here.
    pub(super) first: u32,
    /// Exchanges at the same time, 1 or more.
    pub(super) in_flight: u32,
    /// Time from one start to the next; `None` starts one as soon as another has ended.
    pub(super) interval: Option<Duration>,
    /// Start of the first one.
    pub(super) begin: Instant,
    pub(super) window: Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Asking,
    /// The allocation is there, and is being given back.
    Releasing,
}

struct Slot {
    link: Link,
    config: ClientConfig,
    phase: Phase,
    /// Begin of the exchange by the schedule.
    began: Instant,
    /// Its connection ended while idle.
    broken: bool,
}

pub(super) struct Worker {
    kind: Kind,
    family: IpFamily,
    endpoint: Endpoint,
    share: Share,
    slots: Vec<Slot>,
    /// Idle slots.
    free: Vec<usize>,
    /// Time of the next exchange; without a fixed rate, of the first one.
    next: Instant,
    /// Seeds of clients: random, and no two the same.
    seed: [u8; 32],
    clients: u64,
    epoll: Epoll,
    /// Receive buffer.
    buffer: Vec<u8>,
    tally: Tally,
}

impl Worker {
    pub(super) fn new(spec: &RequestSpec, share: Share) -> Result<Self> {
        let endpoint = spec.endpoint()?;
        let epoll = Epoll::new().context("epoll")?;
        let mut slots = Vec::new();
        for number in 0..share.in_flight {
            let credentials = spec.credentials(share.first + number);
            let config = client_config(&endpoint, &credentials);
            let link = Link::open(&endpoint, config.clone())
                .with_context(|| format!("socket {} of {}", number + 1, share.in_flight))?;
            link.wire.watch(&epoll, u64::from(number)).context("epoll")?;
            slots.push(Slot {
                link,
                config,
                phase: Phase::Idle,
                began: Instant::ZERO,
                broken: false,
            });
        }
        Ok(Self {
            kind: spec.kind,
            family: spec.family,
            endpoint,
            share,
            free: (0..slots.len()).collect(),
            slots,
            next: share.begin,
            seed: random_bytes(),
            clients: 0,
            epoll,
            buffer: vec![0; RECEIVE_BYTES],
            tally: Tally::new()?,
        })
    }

    /// Works until the measured time is over and its exchanges have ended.
    pub(super) fn run(mut self) -> Result<Tally> {
        let end = self.share.window.end;
        let mut events = Events::new(EVENTS);
        let mut ready = Vec::with_capacity(EVENTS);
        let mut timers = Instant::ZERO;
        loop {
            let now = Clock::instant();
            self.start_due(now)?;
            if now >= end && (self.free.len() == self.slots.len() || now >= end + GRACE) {
                self.finish_all();
                return Ok(self.tally);
            }
            self.epoll.wait(&mut events, Some(self.patience(now))).context("epoll")?;
            ready.clear();
            ready.extend(events.iter());
            for event in &ready {
                self.receive(event.token as usize, event.error)?;
            }
            let now = Clock::instant();
            if now >= timers {
                timers = now + TIMERS;
                self.call_timers(now)?;
            }
        }
    }

    /// Timeout of epoll, which counts in milliseconds. Within the last one the thread polls, so
    /// that the pace is not epoll's.
    fn patience(&self, now: Instant) -> Duration {
        if self.free.is_empty() || self.next >= self.share.window.end {
            return TIMERS;
        }
        let due = self.next.saturating_since(now);
        Duration::from_millis(u64::try_from(due.as_millis()).unwrap_or(u64::MAX)).min(TIMERS)
    }

    fn start_due(&mut self, now: Instant) -> Result<()> {
        match self.share.interval {
            None => {
                while self.next <= now
                    && now < self.share.window.end
                    && let Some(index) = self.free.pop()
                {
                    self.start(index, now)?;
                }
            }
            Some(interval) => {
                while self.next <= now
                    && self.next < self.share.window.end
                    && let Some(index) = self.free.pop()
                {
                    let due = self.next;
                    self.next = due + interval;
                    self.start(index, due)?;
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize, began: Instant) -> Result<()> {
        if self.share.window.contains(began) {
            self.tally.started += 1;
        }
        let slot = &mut self.slots[index];
        slot.began = began;
        slot.phase = Phase::Asking;
        let now = Clock::instant();
        match self.kind {
            Kind::Binding => {
                if slot.broken {
                    self.replace_wire(index)?;
                }
                self.slots[index].link.client.binding(now)?;
            }
            Kind::Allocation { .. } => {
                if self.endpoint.transport.has_connections() {
                    self.replace_wire(index)?;
                } else {
                    self.forget(index);
                }
                allocate(&mut self.slots[index].link.client, now, self.family)?;
            }
        }
        self.send(index);
        Ok(())
    }

    /// Another client in place of the one that was there.
    fn forget(&mut self, index: usize) {
        self.clients += 1;
        let mut seed = self.seed;
        for (byte, count) in seed.iter_mut().zip(self.clients.to_le_bytes()) {
            *byte ^= count;
        }
        let slot = &mut self.slots[index];
        slot.link.client = Client::new(ClientConfig { seed, ..slot.config.clone() });
    }

    fn send(&mut self, index: usize) {
        let sent = self.slots[index].link.send();
        if sent > 0 && self.share.window.contains(Clock::instant()) {
            self.tally.sent += sent;
        }
    }

    fn receive(&mut self, index: usize, error: bool) -> Result<()> {
        let Self { slots, buffer, tally, share, .. } = self;
        let Link { wire, client } = &mut slots[index].link;
        let mut failure = None;
        let now = Clock::instant();
        let mut take = |message: &[u8]| {
            tally.received += u64::from(share.window.contains(now));
            client.handle_datagram(now, message);
        };
        match wire {
            Wire::Udp(socket) => {
                if error {
                    let note = |error: linux_net::SocketError| {
                        failure = error.icmp.map(|_| SessionError::Unreachable(error));
                    };
                    socket.recv_errors(note)?;
                }
                if let Some(len) = socket.recv(buffer)? {
                    take(&buffer[..len]);
                }
            }
            Wire::Connection(connection) => {
                let received = connection.lock().receive_all(buffer, take);
                failure = received.err().map(|error| SessionError::Connection(error.to_string()));
            }
        }
        self.settle(index)?;
        match failure {
            Some(failure) if self.slots[index].phase != Phase::Idle => {
                self.end(index, Err(failure))
            }
            Some(failure) => {
                self.slots[index].broken |= matches!(failure, SessionError::Connection(_));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn call_timers(&mut self, now: Instant) -> Result<()> {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let due = slot.link.client.poll_timeout().is_some_and(|due| due <= now);
            if slot.phase != Phase::Idle && due {
                slot.link.client.handle_timeout(now);
                self.settle(index)?;
            }
        }
        Ok(())
    }

    /// Handles the events of a client.
    fn settle(&mut self, index: usize) -> Result<()> {
        while self.slots[index].phase != Phase::Idle
            && let Some(event) = self.slots[index].link.client.poll_event()
        {
            match event {
                Event::Allocated(_) => self.allocated(index)?,
                Event::Bound { .. } => {
                    self.note_latency(index);
                    self.end(index, Ok(()))?;
                }
                Event::Released => {
                    self.end(index, Ok(()))?;
                    self.move_on(index)?;
                }
                Event::Refreshed { .. }
                | Event::PermissionReady { .. }
                | Event::ChannelReady { .. }
                | Event::Redirected { .. }
                | Event::Refused { .. }
                | Event::Failed { .. }
                | Event::PermissionLost { .. }
                | Event::ChannelLost { .. }
                | Event::AllocationLost(_) => {
                    if let Some(error) = SessionError::at_setup(event) {
                        self.end(index, Err(error))?;
                    }
                }
            }
        }
        self.send(index);
        Ok(())
    }

    fn allocated(&mut self, index: usize) -> Result<()> {
        self.note_latency(index);
        match self.kind {
            Kind::Allocation { release: true } => {
                let slot = &mut self.slots[index];
                slot.phase = Phase::Releasing;
                slot.link.client.release(Clock::instant())?;
                Ok(())
            }
            Kind::Allocation { release: false } | Kind::Binding => {
                self.end(index, Ok(()))?;
                self.move_on(index)
            }
        }
    }

    fn note_latency(&mut self, index: usize) {
        let began = self.slots[index].began;
        if self.share.window.contains(began) {
            self.tally.note_latency(Clock::instant().saturating_since(began));
        }
    }

    fn end(&mut self, index: usize, outcome: Result<(), SessionError>) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.phase = Phase::Idle;
        self.free.push(index);
        let counts = self.share.window.contains(slot.began);
        match outcome {
            Ok(()) => {
                self.tally.succeeded += u64::from(counts);
                Ok(())
            }
            Err(error) => {
                self.tally.fail(error.to_string(), u64::from(counts));
                self.replace_wire(index)
            }
        }
    }

    /// Prepares a slot after an allocation. A new connection is part of the next exchange.
    fn move_on(&mut self, index: usize) -> Result<()> {
        if self.endpoint.transport.has_connections() { Ok(()) } else { self.replace_wire(index) }
    }

    /// The server may still know the old one's port, and answers to it may still come.
    fn replace_wire(&mut self, index: usize) -> Result<()> {
        let wire = ports::open(&self.endpoint).context("another socket")?;
        wire.watch(&self.epoll, index as u64).context("epoll")?;
        self.slots[index].link.wire = wire;
        self.slots[index].broken = false;
        self.forget(index);
        Ok(())
    }

    /// Counts unfinished exchanges, and those that never began.
    fn finish_all(&mut self) {
        let window = self.share.window;
        let unfinished = |slot: &&Slot| slot.phase != Phase::Idle && window.contains(slot.began);
        let unfinished = self.slots.iter().filter(unfinished).count();
        self.tally.fail(UNFINISHED.to_owned(), unfinished as u64);
        if let Some(interval) = self.share.interval {
            let mut missed = 0;
            while self.next < window.end {
                missed += u64::from(window.contains(self.next));
                self.next = self.next + interval;
            }
            self.tally.started += missed;
            self.tally.fail(NOT_STARTED.to_owned(), missed);
        }
        // The rest is released without waiting for the answer.
        for slot in &mut self.slots {
            if slot.link.client.allocation().is_some() {
                let _ = slot.link.client.release(Clock::instant());
                slot.link.send();
            }
        }
    }
}
