//! A peer over TCP: accepts connections of relayed addresses, connects to some of them, and echoes.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use linux_net::ReadOutcome;
use netsim::Rng;
use turn_types::{Instant, Now};

use crate::framing::{Board, HEADER_LEN, client_of_stream, stream_byte};
use crate::tcp::{Backlog, TcpEnd, TcpNet};

/// Pause between two actions, at least and below.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Connections at a time.
const OPEN_MAX: usize = 16;

/// A connection.
#[derive(Debug)]
struct Open {
    end: TcpEnd,
    /// The relayed address at its other end.
    relayed: SocketAddr,
    header: [u8; HEADER_LEN],
    received: u64,
    /// Bytes to be echoed.
    unsent: Vec<u8>,
    /// The other side has said all.
    ended: bool,
    /// Reads nothing until then.
    reads_at: Instant,
}

/// A peer over TCP.
#[derive(Debug)]
pub struct TcpPeerHost {
    me: SocketAddr,
    tcp: TcpNet,
    board: Board,
    rng: Rng,
    backlog: Rc<RefCell<Backlog>>,
    open: Vec<Open>,
    acts_at: Instant,
    until: Instant,
    /// Connections that were accepted.
    pub accepted: u64,
    /// The first byte that should not have come here.
    pub violation: Option<String>,
}

impl TcpPeerHost {
    /// A peer that listens at this address, until its end.
    ///
    /// # Panics
    /// The address is in use.
    #[must_use]
    pub fn new(me: SocketAddr, tcp: TcpNet, board: Board, rng: Rng, until: Instant) -> Self {
        let (_, backlog) = tcp.listen(me, false).expect("a free address");
        let (open, acts_at) = (Vec::new(), Instant::ZERO);
        Self { me, tcp, board, rng, backlog, open, acts_at, until, accepted: 0, violation: None }
    }

    /// Serves connections, and acts when it is time.
    pub fn wake(&mut self, now: Now) {
        let at = now.instant;
        self.tcp.advance(at);
        if at >= self.until {
            return self.open.clear();
        }
        self.accept(at);
        for mut open in std::mem::take(&mut self.open) {
            match open.serve(at, self.me, &self.board) {
                Ok(true) => self.open.push(open),
                Ok(false) => {}
                Err(why) => {
                    self.violation.get_or_insert(why);
                }
            }
        }
        if at >= self.acts_at {
            self.acts_at = at + PAUSE.0 + self.rng.duration_below(PAUSE.1);
            self.act(at);
        }
    }

    /// Time at which it is to wake.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        if self.tcp.now() >= self.until && self.open.is_empty() {
            return None;
        }
        let reads = self.open.iter().map(|open| open.reads_at).filter(|at| *at > self.tcp.now());
        let event = self.tcp.next_event();
        [Some(self.acts_at), event].into_iter().flatten().chain(reads).min()
    }

    fn accept(&mut self, at: Instant) {
        loop {
            let mut backlog = self.backlog.borrow_mut();
            if backlog.front().is_none_or(|(arrives, _)| *arrives > at) {
                return;
            }
            let accepted = backlog.pop_front();
            drop(backlog);
            if let Some((_, end)) = accepted {
                self.accepted += 1;
                let relayed = end.remote_addr();
                self.open.push(Open::new(end, relayed));
            }
        }
    }

    fn act(&mut self, at: Instant) {
        let relayed = self.board.tcp_relayed(&mut self.rng);
        let fits = |relayed: &SocketAddr| relayed.is_ipv4() == self.me.is_ipv4();
        if let Some(relayed) = relayed.filter(fits)
            && self.open.len() < OPEN_MAX
        {
            let from = SocketAddr::new(self.me.ip(), self.tcp.next_port());
            let end = self.tcp.connect(from, relayed);
            self.open.push(Open::new(end, relayed));
        }
        if self.open.is_empty() {
            return;
        }
        let index = self.rng.index(self.open.len());
        match self.rng.below(12) {
            0 => self.open.swap_remove(index).end.reset(),
            1 => drop(self.open.swap_remove(index)),
            // Its window fills.
            2 => {
                let pause = self.rng.duration_below(Duration::from_secs(120));
                self.open[index].reads_at = at + pause;
            }
            _ => {}
        }
    }
}

impl Open {
    const fn new(end: TcpEnd, relayed: SocketAddr) -> Self {
        Self {
            end,
            relayed,
            header: [0; HEADER_LEN],
            received: 0,
            unsent: Vec::new(),
            ended: false,
            reads_at: Instant::ZERO,
        }
    }

    /// Returns false when the connection has ended.
    fn serve(&mut self, at: Instant, me: SocketAddr, board: &Board) -> Result<bool, String> {
        if at < self.reads_at {
            return Ok(true);
        }
        loop {
            let Ok(written) = self.end.write(&self.unsent) else { return Ok(false) };
            self.unsent.drain(..written);
            if !self.unsent.is_empty() {
                return Ok(self.end.take_error().is_none());
            }
            if self.ended {
                self.end.end_sending();
                return Ok(false);
            }
            let mut room = [0; 4096];
            match self.end.read(&mut room) {
                Ok(ReadOutcome::Read(len)) => self.take(&room[..len], me, board)?,
                Ok(ReadOutcome::WouldBlock) => return Ok(true),
                Ok(ReadOutcome::Ended) => self.ended = true,
                Err(_) => return Ok(false),
            }
        }
    }

    fn take(&mut self, bytes: &[u8], me: SocketAddr, board: &Board) -> Result<(), String> {
        let relayed = self.relayed;
        for &byte in bytes {
            let place = usize::try_from(self.received).ok();
            if let Some(place) = place.and_then(|place| self.header.get_mut(place)) {
                *place = byte;
                if self.received + 1 == HEADER_LEN as u64 {
                    let client = client_of_stream(&self.header, me);
                    if !client.is_some_and(|client| board.has_owned(client, relayed)) {
                        return Err(format!("{relayed} sent bytes of client {client:?} by TCP"));
                    }
                }
            } else if byte != stream_byte(&self.header, self.received) {
                return Err(format!("{relayed} sent a wrong byte {} by TCP", self.received));
            }
            self.received += 1;
        }
        self.unsent.extend_from_slice(bytes);
        Ok(())
    }
}
