//! Receiving at the clients: a thread with its sessions, which it also keeps alive.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context as _, Result};
use client_driver::{RECEIVE_BYTES, Wire};
use linux_net::{Clock, Epoll, Event, Events, RxBatch, UdpSocket};
use stun_wire::{PacketKind, channel_data_rfc5766, classify_rfc5766};
use turn_types::Instant;

use crate::engine::control::Message;
use crate::engine::tally::{Arrived, Count, Seen};
use crate::engine::{clock, counts::Counts};
use crate::packet::Header;
use crate::session::Session;

/// The longest wait for packets: the end of a run is noticed within it.
const WAIT: Duration = Duration::from_millis(10);

/// Interval of checks for due refreshes and retransmissions, in nanoseconds. Refreshes begin a
/// minute early, and retransmissions wait half a second.
const UPKEEP_NANOS: u64 = 100_000_000;

/// Reads of a connection per turn.
const READS: usize = 4;

/// Messages received from a socket per turn.
const MESSAGES: usize = 32;

/// A message of the peer, and the flow it came by.
pub(crate) type Word = (u32, Message);

/// Sessions on one epoll.
#[derive(Debug)]
pub(crate) struct Receiver {
    members: Vec<Member>,
    epoll: Epoll,
    events: Events,
    rx: RxBatch,
    /// Receive buffer of connections.
    buffer: Vec<u8>,
    /// The members, by their place, that are [unread](Member::unread).
    unread: Vec<usize>,
}

#[derive(Debug)]
struct Member {
    flow: u32,
    session: Session,
    seen: Seen,
    /// It is a connection with possibly unread data.
    unread: bool,
}

/// Parameters of a receiver for one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment<'a> {
    /// Number of the receiver.
    pub(crate) thread: usize,
    /// Counters.
    pub(crate) counts: &'a Counts,
    /// Channel for messages of the peer. When it is full they are lost, and requested again.
    pub(crate) words: &'a SyncSender<Word>,
    /// Set at the end of the run.
    pub(crate) halt: &'a AtomicBool,
}

impl Receiver {
    /// A receiver for these sessions, each with the number of its flow.
    pub(crate) fn new(sessions: Vec<(u32, Session)>) -> Result<Self> {
        let epoll = Epoll::new().context("epoll")?;
        for (index, (_, session)) in sessions.iter().enumerate() {
            session.wire.watch(&epoll, index as u64).context("epoll")?;
        }
        let member =
            |(flow, session)| Member { flow, session, seen: Seen::default(), unread: false };
        let members = sessions.into_iter().map(member).collect();
        let (events, rx) = (Events::new(256), RxBatch::new(MESSAGES));
        let (buffer, unread) = (vec![0; RECEIVE_BYTES], Vec::new());
        Ok(Self { members, epoll, events, rx, buffer, unread })
    }

    /// The sessions.
    pub(crate) fn into_sessions(self) -> impl Iterator<Item = Session> {
        self.members.into_iter().map(|member| member.session)
    }

    /// Datagrams dropped by the sockets; 0 where the kernel does not count them.
    pub(crate) fn dropped(&self) -> u64 {
        let dropped = |member: &Member| match &member.session.wire {
            Wire::Udp(socket) => u64::from(socket.dropped().unwrap_or(0)),
            Wire::Connection(_) => 0,
        };
        self.members.iter().map(dropped).sum()
    }

    /// Receives until the run is over; sets `halt` when it fails.
    pub(crate) fn run(&mut self, assignment: Assignment<'_>) -> Result<()> {
        let result = self.receive_until(assignment);
        if result.is_err() {
            assignment.halt.store(true, Relaxed);
        }
        result
    }

    fn receive_until(&mut self, assignment: Assignment<'_>) -> Result<()> {
        self.members.iter_mut().for_each(|member| member.seen = Seen::default());
        let mut upkeep = 0;
        while !assignment.halt.load(Relaxed) {
            let Self { members, epoll, events, rx, buffer, unread } = self;
            let patience = if unread.is_empty() { WAIT } else { Duration::ZERO };
            epoll.wait(events, Some(patience)).context("epoll")?;
            for event in events.iter() {
                // Tokens are indices.
                let index = event.token as usize;
                let member = &mut members[index];
                match &member.session.wire {
                    Wire::Udp(_) => member.receive(event, rx, assignment)?,
                    Wire::Connection(_) if member.unread => {}
                    Wire::Connection(_) => {
                        member.unread = true;
                        unread.push(index);
                    }
                }
            }
            // Connections are edge-triggered: unread data has to be remembered.
            let mut place = 0;
            while let Some(&index) = unread.get(place) {
                members[index].unread = members[index].read(buffer, assignment)?;
                if members[index].unread {
                    place += 1;
                } else {
                    unread.swap_remove(place);
                }
            }
            if clock::now() >= upkeep {
                upkeep = clock::now() + UPKEEP_NANOS;
                self.keep_alive(Clock::instant())?;
            }
        }
        Ok(())
    }

    /// Drives sessions that are due.
    fn keep_alive(&mut self, now: Instant) -> Result<()> {
        for Member { session, flow, .. } in &mut self.members {
            if session.next_timeout().is_some_and(|due| due <= now) {
                drive(session, *flow, now)?;
            }
        }
        Ok(())
    }
}

impl Member {
    fn receive(
        &mut self,
        event: Event,
        rx: &mut RxBatch,
        assignment: Assignment<'_>,
    ) -> Result<()> {
        let Wire::Udp(socket) = &self.session.wire else { return Ok(()) };
        let received = receive_datagrams(socket, event, rx)?;
        if received == 0 {
            return Ok(());
        }
        let now = Clock::instant();
        let mut count = assignment.counts.of(assignment.thread);
        let mut spoken = false;
        for index in 0..received {
            for (_, datagram) in rx.message(index).segments() {
                spoken |= self.hear(datagram, &mut count, now, assignment);
            }
        }
        drop(count);
        if spoken { drive(&mut self.session, self.flow, now) } else { Ok(()) }
    }

    /// Reads a connection; `true` when there may be more.
    fn read(&mut self, buffer: &mut [u8], assignment: Assignment<'_>) -> Result<bool> {
        let Wire::Connection(connection) = &self.session.wire else { return Ok(false) };
        let connection = connection.clone();
        let (mut spoken, mut more) = (false, true);
        for _ in 0..READS {
            let now = Clock::instant();
            let mut count = assignment.counts.of(assignment.thread);
            let received = connection.lock().receive(buffer, |message| {
                spoken |= self.hear(message, &mut count, now, assignment);
            });
            drop(count);
            more = received.with_context(|| format!("session {}", self.flow))?;
            if !more {
                break;
            }
        }
        if spoken {
            drive(&mut self.session, self.flow, Clock::instant())?;
        }
        Ok(more)
    }

    /// Handles a message; `true` when it was for the client.
    fn hear(
        &mut self,
        message: &[u8],
        count: &mut Count,
        now: Instant,
        assignment: Assignment<'_>,
    ) -> bool {
        match classify_rfc5766(message) {
            PacketKind::ChannelData => {
                self.take(message, count, now, assignment);
                false
            }
            PacketKind::Stun => {
                self.session.take(now, message);
                true
            }
            PacketKind::Dtls | PacketKind::Other => {
                count.tally.damaged += 1;
                false
            }
        }
    }

    fn take(
        &mut self,
        datagram: &[u8],
        count: &mut Count,
        now: Instant,
        assignment: Assignment<'_>,
    ) {
        let payload = match channel_data_rfc5766(datagram) {
            Ok(frame) if frame.number == self.session.channel.get() => frame.data,
            Ok(_) | Err(_) => {
                count.tally.damaged += 1;
                return;
            }
        };
        if let Some(header) = Header::decode(payload) {
            let arrived = Arrived { flow: self.flow, len: payload.len(), now: now.as_nanos() };
            count.take(&header, arrived, &mut self.seen);
        } else if let Some(message) = Message::decode(payload) {
            let _ = assignment.words.try_send((self.flow, message));
        } else {
            count.tally.damaged += 1;
        }
    }
}

fn receive_datagrams(socket: &UdpSocket, event: Event, rx: &mut RxBatch) -> Result<usize> {
    if event.error {
        // ICMP about packets of the run: they count as lost, and a missing server shows by its
        // silence.
        socket.recv_errors(|_| ()).context("the error queue of a socket")?;
    }
    rx.recv(socket).context("receiving from the server")
}

fn drive(session: &mut Session, flow: u32, now: Instant) -> Result<()> {
    session.drive(now).map_err(|error| {
        let advice = error.advice().map(|advice| format!(": {advice}")).unwrap_or_default();
        anyhow::anyhow!("session {flow}: {error}{advice}")
    })
}
