//! Peers that send, and clients that count the packets that arrive.
//!
//! Each session has a client and a peer. One thread is both for its share of the sessions: it sends
//! until the window is full, then receives. So the relay always has packets queued, and is never
//! flooded: a flooded relay spends its time on receiving packets that it drops, and that would be
//! measured.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use linux_net::{
    Epoll, Events, Flow, Interest, Part, RxBatch, SendSocket, SendStats, SocketTable, TxBatch,
    UdpOptions, UdpSocket,
};
use turn_types::IpMeta;

use super::relay::{Clients, Key};
use crate::engine::{Arrived, Count, Seen, Tally, Window, now};
use crate::packet::{HEADER, Header};

/// Requested socket buffers in bytes; without privileges the system grants less.
const BUFFER_BYTES: usize = 4 << 20;

/// Packets per flush: enough that the calls are cheap, few enough to stay in the cache.
const PER_FLUSH: u32 = 512;

/// Time for packets of the measured time to arrive, in nanoseconds.
const GRACE: u64 = 200_000_000;

/// After so many nanoseconds without arrivals the packets in flight are lost.
const STALLED: u64 = 100_000_000;

/// Sleep when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(50);

/// Offered load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Payload bytes, at least [`HEADER`].
    pub(super) size: u16,
    /// Packets of a session in its turn.
    pub(super) burst: u32,
    /// Packets in flight, over all sessions.
    pub(super) in_flight: u32,
    /// The run; packets of others are not counted.
    pub(super) run: u32,
    /// The measured time.
    pub(super) window: Window,
}

/// Packets of the measured time.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Taken by the kernel.
    pub(super) sent: u64,
    /// Refused by the kernel.
    pub(super) refused: u64,
    /// Arrived.
    pub(super) tally: Tally,
}

/// The sockets of one session, and the state of its packets.
#[derive(Debug)]
struct Session {
    number: u32,
    client: UdpSocket,
    peer: UdpSocket,
    /// Sequence number of the next packet.
    next: u32,
    /// One more than the highest sequence number that arrived.
    end: u32,
    seen: Seen,
}

/// Sessions with open sockets.
#[derive(Debug)]
pub(super) struct Sessions {
    sessions: Vec<Session>,
    /// The smallest receive buffer of a client, in bytes.
    pub(super) recv_buffer: usize,
}

impl Sessions {
    /// Opens a client and a peer for each session.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn open(ip: IpAddr, count: u32) -> io::Result<Self> {
        let options = UdpOptions {
            recv_buffer: BUFFER_BYTES,
            send_buffer: BUFFER_BYTES,
            error_queue: false,
            device: None,
            ..UdpOptions::default()
        };
        let (mut recv_buffer, mut sessions) = (BUFFER_BYTES, Vec::new());
        for number in 0..count {
            let (client, applied) = UdpSocket::bind((ip, 0).into(), &options)?;
            let (peer, _) = UdpSocket::bind((ip, 0).into(), &options)?;
            recv_buffer = recv_buffer.min(applied.recv_buffer);
            sessions.push(Session { number, client, peer, next: 0, end: 0, seen: Seen::default() });
        }
        Ok(Self { sessions, recv_buffer })
    }

    /// Handles of the clients' sockets, for their drop counters.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn clients(&self) -> io::Result<Vec<UdpSocket>> {
        self.sessions.iter().map(|session| session.client.try_clone()).collect()
    }

    /// The relay's table for a run.
    pub(super) fn table(&self, run: u32) -> Clients {
        let entry = |session: &Session| (key(run, session.number), session.client.local_addr());
        self.sessions.iter().map(entry).collect()
    }

    /// Starts a thread for each of `cores`, on that core if it is given. Each has its share of the
    /// sessions and of the window, and ends after the measured time.
    ///
    /// # Errors
    /// No threads left.
    pub(super) fn start(
        self,
        relay: SocketAddr,
        load: Load,
        cores: &[Option<usize>],
    ) -> io::Result<Generator> {
        let count = cores.len().clamp(1, self.sessions.len().max(1));
        let mut shares: Vec<Vec<Session>> = Vec::new();
        shares.resize_with(count, Vec::new);
        for session in self.sessions {
            shares[session.number as usize % count].push(session);
        }
        let in_flight = (load.in_flight / count as u32).max(load.burst);
        let load = Load { in_flight, ..load };
        let threads = shares.into_iter().zip(cores).map(|(sessions, core)| {
            let core = *core;
            thread::Builder::new().name("generator".to_owned()).spawn(move || {
                if let Some(core) = core {
                    linux_net::pin_current_thread(core).context("pinning to a core")?;
                }
                Worker::new(sessions, relay, load)?.run()
            })
        });
        Ok(Generator { threads: threads.collect::<io::Result<_>>()? })
    }
}

/// Bytes of a packet's header that name the session.
pub(super) fn key(run: u32, session: u32) -> Key {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&run.to_be_bytes());
    key[4..].copy_from_slice(&session.to_be_bytes());
    key
}

/// Running clients and peers.
#[derive(Debug)]
pub(super) struct Generator {
    threads: Vec<JoinHandle<Result<Counted>>>,
}

impl Generator {
    /// Waits for the end of the measured time and the last packets.
    ///
    /// # Errors
    /// The failure of a thread.
    pub(super) fn finish(self) -> Result<Counted> {
        let mut sum = Counted::default();
        for thread in self.threads {
            let counted = thread.join().map_err(|_| anyhow!("a generator panicked"))??;
            sum.sent += counted.sent;
            sum.refused += counted.refused;
            sum.tally.add(&counted.tally);
        }
        Ok(sum)
    }
}

struct Worker {
    sessions: Vec<Session>,
    relay: SocketAddr,
    load: Load,
    epoll: Epoll,
    events: Events,
    rx: RxBatch,
    tx: TxBatch,
    /// Payload behind the header.
    filler: Vec<u8>,
    /// The session whose turn is next.
    turn: usize,
    state: State,
}

/// The peers' sockets, by the place of their session.
struct Peers<'a>(&'a [Session]);

impl SocketTable for Peers<'_> {
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket> {
        self.0.get(usize::try_from(socket.0).ok()?).map(|session| &session.peer)
    }
}

/// Packets sent and received.
struct State {
    /// Packets that the kernel took and that neither arrived nor were overtaken.
    in_flight: u64,
    /// Time of the last arrival, or of the first packet in flight.
    moved: u64,
    sent: u64,
    refused: u64,
    count: Count,
}

impl Worker {
    fn new(sessions: Vec<Session>, relay: SocketAddr, load: Load) -> Result<Self> {
        let epoll = Epoll::new()?;
        for (token, session) in (0..).zip(&sessions) {
            epoll.add(&session.client, token, Interest::Read)?;
        }
        let mut count = Count::default();
        count.begin(load.run, load.size);
        (count.window, count.one_clock) = (Some(load.window), true);
        Ok(Self {
            events: Events::new(sessions.len().min(1024)),
            sessions,
            relay,
            load,
            epoll,
            rx: RxBatch::new(32),
            tx: TxBatch::new(),
            filler: vec![0; usize::from(load.size).saturating_sub(HEADER)],
            turn: 0,
            state: State { in_flight: 0, moved: 0, sent: 0, refused: 0, count },
        })
    }

    /// Sends until the end of the measured time, and receives the packets still in flight.
    fn run(mut self) -> Result<Counted> {
        // The window is refilled at once: many packets at each end cost less than few.
        let low = u64::from(self.load.in_flight) * 3 / 4;
        let end = self.load.window.end;
        loop {
            let time = now();
            if time >= end {
                break;
            }
            self.state.give_up_lost(time);
            if self.state.in_flight <= low {
                self.send(time);
            }
            if !self.receive()? && self.state.in_flight > low {
                thread::sleep(PAUSE);
            }
        }
        while self.state.in_flight > 0 && now() < end + GRACE {
            if !self.receive()? {
                thread::sleep(PAUSE);
            }
        }
        let State { sent, refused, count, .. } = self.state;
        Ok(Counted { sent, refused, tally: count.tally })
    }

    /// Fills the window, session by session.
    fn send(&mut self, time: u64) {
        let room = u64::from(self.load.in_flight).saturating_sub(self.state.in_flight);
        // At most one turn of each session: two turns in one flush would leave as one burst.
        let turns = (room / u64::from(self.load.burst))
            .min(self.sessions.len() as u64)
            .min(u64::from((PER_FLUSH / self.load.burst).max(1)));
        // The batch is empty, and holds more than a flush, here and below.
        let Ok(filler) = self.tx.arena_write(&self.filler) else { return };
        for _ in 0..turns {
            self.push_burst(filler);
        }
        if self.state.in_flight == 0 {
            self.state.moved = time;
        }
        let mut stats = SendStats::default();
        let Self { tx, rx, sessions, state, .. } = self;
        tx.flush(rx, &Peers(sessions), &mut stats, |counts, _| state.refuse(counts));
        state.in_flight += stats.datagrams;
    }

    /// Adds the packets of one turn, with tag 1 when they are of the measured time.
    fn push_burst(&mut self, filler: Part) {
        let sent = now();
        let counts = u32::from(self.load.window.contains(sent));
        let socket = SendSocket(self.turn as u64);
        let flow = Flow { socket, to: self.relay, from: None, meta: IpMeta::DEFAULT };
        let session = &mut self.sessions[self.turn];
        for _ in 0..self.load.burst {
            let (run, flow_number) = (self.load.run, session.number);
            let header = Header { run, flow: flow_number, sequence: session.next, sent };
            let Ok(head) = self.tx.arena_write(&header.encode()) else { return };
            let parts: &[Part] = if self.filler.is_empty() { &[head] } else { &[head, filler] };
            if self.tx.push(flow, parts, counts).is_err() {
                return;
            }
            session.next += 1;
            self.state.sent += u64::from(counts);
        }
        self.turn = (self.turn + 1) % self.sessions.len();
    }

    /// Receives from each client; whether there was anything.
    fn receive(&mut self) -> Result<bool> {
        let Self { epoll, events, rx, sessions, state, .. } = self;
        let ready = epoll.wait(events, Some(Duration::ZERO))?;
        for event in events.iter() {
            let session = &mut sessions[event.token as usize];
            rx.recv(&session.client).context("receiving at a client")?;
            let now = now();
            for message in 0..rx.len() {
                for (_, datagram) in rx.message(message).segments() {
                    state.take(session, datagram, now);
                }
            }
        }
        Ok(ready > 0)
    }
}

impl State {
    /// Counts a datagram of a session's client.
    fn take(&mut self, session: &mut Session, datagram: &[u8], now: u64) {
        let Session { number, end, seen, .. } = session;
        let Some(header) = Header::decode(datagram) else {
            self.count.tally.damaged += 1;
            return;
        };
        self.count.take(&header, Arrived { flow: *number, len: datagram.len(), now }, seen);
        if header.run == self.count.run && header.flow == *number && header.sequence >= *end {
            // Packets that it overtook are not in flight either.
            let passed = header.sequence + 1 - *end;
            self.in_flight = self.in_flight.saturating_sub(u64::from(passed));
            *end = header.sequence + 1;
            self.moved = now;
        }
    }

    /// A packet that the kernel refused; `counts` is 1 for one that was counted as sent.
    fn refuse(&mut self, counts: u32) {
        self.sent -= u64::from(counts);
        self.refused += u64::from(counts);
    }

    /// Frees the window of lost packets that no later one has overtaken.
    fn give_up_lost(&mut self, now: u64) {
        if self.in_flight > 0 && now.saturating_sub(self.moved) > STALLED {
            self.in_flight = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_arrived_were_overtaken_or_lost_are_not_in_flight() {
        let mut count = Count::default();
        count.begin(4, 30);
        (count.window, count.one_clock) = (Some(Window { start: 100, end: 200 }), true);
        let mut state = State { in_flight: 5, moved: 0, sent: 0, refused: 0, count };
        let loopback = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let mut sessions = Sessions::open(loopback, 2).unwrap().sessions;
        let mut arrive = |state: &mut State, flow, sequence, sent| {
            let header = Header { run: 4, flow, sequence, sent };
            let datagram = [&header.encode()[..], &[0; 6]].concat();
            state.take(&mut sessions[1], &datagram, 300);
            let tally = &state.count.tally;
            (state.in_flight, tally.delivered, tally.duplicates, tally.damaged)
        };
        for (sequence, sent, expected) in [
            (0, 99, (4, 0, 0, 0)),
            (3, 100, (1, 1, 0, 0)),
            (1, 199, (1, 2, 0, 0)),
            (3, 100, (1, 2, 1, 0)),
        ] {
            assert_eq!(arrive(&mut state, 1, sequence, sent), expected, "{sequence}");
        }
        assert_eq!(arrive(&mut state, 2, 4, 150), (1, 2, 1, 1), "of another session");
        state.give_up_lost(300 + STALLED);
        assert_eq!(state.in_flight, 1);
        state.give_up_lost(301 + STALLED);
        assert_eq!(state.in_flight, 0);
    }
}
