//! One thread of the generator: sends as the peers, counts as the clients.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::{
    Clock, Epoll, Events, Flow, Interest, Part, RxBatch, SendSocket, SendStats, TxBatch, UdpSocket,
};
use turn_types::IpMeta;

use super::{Counted, Ends, Load, Measured};
use crate::lab::flow::{Arrival, FlowState};
use crate::lab::protocol::{ID, SessionId};
use crate::packet::{HEADER, Header};

/// Packets per flush: enough that the calls are cheap, and few enough to stay in the cache.
const PER_FLUSH: u32 = 512;

/// How long a packet of the measured time may take to arrive, in nanoseconds.
const GRACE: u64 = 200_000_000;

/// When nothing has arrived for so many nanoseconds, what is on its way is lost.
const STALLED: u64 = 100_000_000;

/// How long to look away when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(50);

pub(super) struct Worker {
    flows: Vec<FlowState>,
    clients: Vec<UdpSocket>,
    peers: Vec<UdpSocket>,
    data: SocketAddr,
    epoll: Epoll,
    events: Events,
    rx: RxBatch,
    tx: TxBatch,
    /// What a packet carries behind its header.
    filler: Vec<u8>,
    /// Whose turn it is.
    turn: usize,
    ledger: Ledger,
}

/// What is known of the packets.
struct Ledger {
    load: Load,
    measured: Measured,
    /// Packets that the kernel took and that neither arrived nor were overtaken or given up.
    on_their_way: u64,
    /// When one arrived, or the first of them was sent.
    moved: u64,
    counted: Counted,
}

impl Worker {
    pub(super) fn new(
        flows: Vec<FlowState>,
        ends: Vec<Ends>,
        data: SocketAddr,
        load: Load,
        measured: Measured,
    ) -> Result<Self> {
        let (clients, peers): (Vec<_>, Vec<_>) =
            ends.into_iter().map(|ends| (ends.client, ends.peer)).unzip();
        let epoll = Epoll::new()?;
        for (token, client) in (0..).zip(&clients) {
            epoll.add(client, token, Interest::Read)?;
        }
        let counted = Counted::new()?;
        Ok(Self {
            events: Events::new(clients.len().min(1024)),
            flows,
            clients,
            peers,
            data,
            epoll,
            rx: RxBatch::new(32),
            tx: TxBatch::new(),
            filler: vec![0; load.size.saturating_sub(HEADER)],
            turn: 0,
            ledger: Ledger { load, measured, on_their_way: 0, moved: 0, counted },
        })
    }

    /// Sends until the measured time is over, and takes in what is still on its way then.
    pub(super) fn run(mut self) -> Result<Counted> {
        // Room is made up for in one go: many packets at each end cost less than few.
        let low = u64::from(self.ledger.load.window) * 3 / 4;
        let end = self.ledger.measured.end;
        let mut now = now();
        while now < end {
            self.ledger.give_up_what_is_lost(now);
            if self.ledger.on_their_way <= low {
                self.offer(now);
            }
            if !self.collect()? && self.ledger.on_their_way > low {
                thread::sleep(PAUSE);
            }
            now = self::now();
        }
        while self.ledger.on_their_way > 0 && self::now() < end + GRACE {
            if !self.collect()? {
                thread::sleep(PAUSE);
            }
        }
        Ok(self.ledger.counted)
    }

    /// Sends what there is room for, in turns.
    fn offer(&mut self, now: u64) {
        let Load { window, burst, .. } = self.ledger.load;
        let room = u64::from(window).saturating_sub(self.ledger.on_their_way);
        // One turn of each session at most: two turns in one flush would leave as one burst.
        let turns = (room / u64::from(burst))
            .min(self.flows.len() as u64)
            .min(u64::from((PER_FLUSH / burst).max(1)));
        // There is room, here and below: the batch is empty, and holds more than a flush.
        let Ok(filler) = self.tx.arena_write(&self.filler) else { return };
        for _ in 0..turns {
            self.push_burst(filler);
        }
        if self.ledger.on_their_way == 0 {
            self.ledger.moved = now;
        }
        let mut stats = SendStats::default();
        let Self { tx, rx, peers, ledger, .. } = self;
        tx.flush(rx, peers, &mut stats, |counts, _| ledger.refused(counts));
        self.ledger.on_their_way += stats.datagrams;
    }

    /// Adds the packets of one turn. A packet's tag is 1 when it is one of those that count.
    fn push_burst(&mut self, filler: Part) {
        let sent = now();
        let counts = u32::from(self.ledger.measured.holds(sent));
        let flow = &mut self.flows[self.turn];
        let socket = SendSocket(self.turn as u64);
        let way = Flow { socket, to: self.data, from: None, meta: IpMeta::DEFAULT };
        let Load { run, burst, .. } = self.ledger.load;
        for _ in 0..burst {
            let header = Header { run, flow: flow.number, sequence: flow.next, sent };
            let mut head = [0; ID + HEADER];
            head[..ID].copy_from_slice(&flow.id.0);
            head[ID..].copy_from_slice(&header.encode());
            let Ok(head) = self.tx.arena_write(&head) else { return };
            if self.tx.push(way, &[head, filler], counts).is_err() {
                return;
            }
            flow.next += 1;
            self.ledger.counted.sent += u64::from(counts);
        }
        self.turn = (self.turn + 1) % self.flows.len();
    }

    /// Takes in what waits at each client; whether there was anything.
    fn collect(&mut self) -> Result<bool> {
        let Self { epoll, events, rx, clients, flows, ledger, .. } = self;
        let ready = epoll.wait(events, Some(Duration::ZERO))?;
        for event in events.iter() {
            let client = event.token as usize;
            rx.recv(&clients[client]).context("a client cannot receive")?;
            let now = now();
            for message in 0..rx.len() {
                for (_, datagram) in rx.message(message).segments() {
                    ledger.note(&mut flows[client], datagram, now);
                }
            }
        }
        Ok(ready > 0)
    }
}

impl Measured {
    fn holds(&self, time: u64) -> bool {
        (self.begin..self.end).contains(&time)
    }
}

impl Ledger {
    /// Counts a datagram that a session's client received.
    fn note(&mut self, flow: &mut FlowState, datagram: &[u8], now: u64) {
        let Some((id, payload)) = SessionId::split(datagram) else {
            self.counted.damaged += 1;
            return;
        };
        if id != flow.id {
            self.counted.misdirected += 1;
            return;
        }
        let whole = payload.len() == self.load.size;
        let ours =
            |header: &Header| whole && header.run == self.load.run && header.flow == flow.number;
        let Some(header) = Header::decode(payload).filter(ours) else {
            self.counted.damaged += 1;
            return;
        };
        let counts = self.measured.holds(header.sent);
        match flow.note(header.sequence) {
            Arrival::New { passed } => {
                self.on_their_way = self.on_their_way.saturating_sub(u64::from(passed));
                self.moved = now;
                if counts {
                    self.counted.delivered += 1;
                    self.counted.latency.saturating_record(now.saturating_sub(header.sent));
                }
            }
            Arrival::Again => self.counted.again += u64::from(counts),
        }
    }

    /// A packet that the kernel did not take; `counts` is 1 for one that was counted as sent.
    fn refused(&mut self, counts: u32) {
        self.counted.sent -= u64::from(counts);
        self.counted.refused += u64::from(counts);
    }

    /// Packets that were lost and that no later one of their session has overtaken would hold up
    /// the others for ever.
    fn give_up_what_is_lost(&mut self, now: u64) {
        if self.on_their_way > 0 && now.saturating_sub(self.moved) > STALLED {
            self.on_their_way = 0;
        }
    }
}

fn now() -> u64 {
    Clock::instant().as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { size: 30, burst: 1, window: 10, run: 4 };

    fn ledger() -> Ledger {
        let measured = Measured { begin: 100, end: 200 };
        let counted = Counted::new().unwrap();
        Ledger { load: LOAD, measured, on_their_way: 5, moved: 0, counted }
    }

    fn datagram(flow: &FlowState, sequence: u32, sent: u64) -> Vec<u8> {
        let header = Header { run: LOAD.run, flow: flow.number, sequence, sent };
        [&flow.id.0[..], &header.encode(), &[0; 6]].concat()
    }

    #[test]
    fn what_arrives_is_no_longer_on_its_way_nor_is_what_it_overtook() {
        let (mut ledger, mut flow) = (ledger(), FlowState::new(1));
        for (sequence, sent, on_their_way, delivered) in
            [(0, 99, 4, 0), (3, 100, 1, 1), (1, 199, 1, 2), (4, 200, 0, 2), (5, 300, 0, 2)]
        {
            let datagram = datagram(&flow, sequence, sent);
            ledger.note(&mut flow, &datagram, 300);
            let got = (ledger.on_their_way, ledger.counted.delivered);
            assert_eq!(got, (on_their_way, delivered), "{sequence}");
        }
        let again = datagram(&flow, 3, 100);
        ledger.note(&mut flow, &again, 300);
        assert_eq!((ledger.counted.delivered, ledger.counted.again), (2, 1));
        // 200 ns for the one sent at 100, 101 for that of 199.
        assert_eq!((ledger.counted.latency.min(), ledger.counted.latency.max()), (101, 200));
    }

    #[test]
    fn what_is_not_of_this_session_and_run_is_not_counted_as_delivered() {
        let (mut ledger, mut flow) = (ledger(), FlowState::new(1));
        let mut note = |datagram: &[u8]| {
            ledger.note(&mut flow, datagram, 300);
            let Counted { delivered, misdirected, damaged, .. } = &ledger.counted;
            (*delivered, *misdirected, *damaged)
        };
        let right = datagram(&FlowState::new(1), 0, 150);
        assert_eq!(note(&datagram(&FlowState::new(2), 0, 150)), (0, 1, 0));
        assert_eq!(note(&right[..7]), (0, 1, 1));
        assert_eq!(note(&right[..right.len() - 1]), (0, 1, 2));
        let mut other_run = right.clone();
        other_run[ID + 7] += 1;
        assert_eq!(note(&other_run), (0, 1, 3));
        assert_eq!(note(&right), (1, 1, 3));
    }

    #[test]
    fn what_is_lost_does_not_hold_up_the_others_for_ever() {
        let mut ledger = ledger();
        ledger.moved = 7;
        ledger.give_up_what_is_lost(7 + STALLED);
        assert_eq!(ledger.on_their_way, 5);
        ledger.give_up_what_is_lost(8 + STALLED);
        assert_eq!(ledger.on_their_way, 0);
    }
}
