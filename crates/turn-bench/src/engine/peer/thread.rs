//! One thread of the peer and its socket: packets are counted and echoed, messages answered.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::{
    Epoll, Events, Flow, Interest, Part, Received, RxBatch, SendSocket, SendStats, TxBatch,
    UdpSocket,
};
use turn_types::IpMeta;

use super::runs::{Run, Runs};
use crate::engine::backend::Target;
use crate::engine::clock;
use crate::engine::control::{Body, Message, Refusal};
use crate::engine::tally::{Arrived, Seen};
use crate::packet::Header;

/// The longest wait for packets.
const WAIT: Duration = Duration::from_millis(50);

/// Interval of sweeps for silent runs, in nanoseconds.
const SWEEP_NANOS: u64 = 1_000_000_000;

/// Messages per receive call. Answers to all of them fit a batch of sends, even when each is a run
/// of 64 datagrams.
const MESSAGES: usize = 32;

/// A thread's socket and its flows: the kernel delivers all packets of one flow to one socket.
pub(super) struct Worker {
    thread: usize,
    socket: UdpSocket,
    epoll: Epoll,
    rx: RxBatch,
    out: Out,
    flows: HashMap<Path, Known>,
    runs: Arc<Runs>,
    swept: u64,
}

/// Addresses of a flow: where it comes from, and the one of ours that it goes to. A relay may have
/// one address for the flows of several peers.
type Path = (SocketAddr, Option<IpAddr>);

/// A registered flow.
struct Known {
    run: Arc<Run>,
    flow: u32,
    seen: Seen,
}

/// Batch of packets to send.
struct Out {
    tx: TxBatch,
    stats: SendStats,
}

impl Worker {
    pub(super) fn new(thread: usize, socket: UdpSocket, runs: Arc<Runs>) -> Result<Self> {
        let epoll = Epoll::new().context("epoll")?;
        epoll.add(&socket, 0, Interest::Read).context("epoll")?;
        Ok(Self {
            thread,
            socket,
            epoll,
            rx: RxBatch::new(MESSAGES),
            out: Out { tx: TxBatch::new(), stats: SendStats::default() },
            flows: HashMap::new(),
            runs,
            swept: 0,
        })
    }

    /// Serves until `halt` is set.
    pub(super) fn run(&mut self, halt: &AtomicBool) -> Result<()> {
        let mut events = Events::new(1);
        while !halt.load(Relaxed) {
            if self.rx.recv(&self.socket).context("receiving")? > 0 {
                self.serve();
            } else {
                self.epoll.wait(&mut events, Some(WAIT)).context("epoll")?;
                if events.iter().any(|event| event.error) {
                    // Relayed addresses that are gone; their packets count as lost.
                    self.socket.recv_errors(|_| ()).context("the error queue")?;
                }
            }
            let now = clock::now();
            if now.saturating_sub(self.swept) > SWEEP_NANOS {
                self.swept = now;
                self.sweep(now);
            }
        }
        Ok(())
    }

    /// Handles received packets.
    fn serve(&mut self) {
        let now = clock::now();
        let Self { thread, socket, rx, out, flows, runs, .. } = self;
        let mut datagrams = 0;
        for index in 0..rx.len() {
            let message = rx.message(index);
            let mut others = true;
            if let Some(known) = flows.get_mut(&(message.from, message.to)) {
                let (seen, other) = known.take((index, &message), *thread, now, out);
                datagrams += seen;
                others = other;
            }
            if others {
                let mut handler = Handler { flows, runs, out, now };
                message.segments().for_each(|(_, one)| handler.handle(&message, one));
            }
        }
        let meter = &runs.traffic[*thread];
        meter.received.fetch_add(datagrams, Relaxed);
        out.tx.flush(rx, socket, &mut out.stats, |_, _| ());
        meter.sent.fetch_add(std::mem::take(&mut out.stats.datagrams), Relaxed);
    }

    /// Removes silent runs and their flows.
    fn sweep(&mut self, now: u64) {
        self.runs.sweep(now);
        let before = self.flows.len();
        self.flows.retain(|_, known| !known.run.ended());
        self.runs.leave(before - self.flows.len());
    }
}

impl Known {
    /// Counts and echoes the packets of a received message. Returns their number, and whether there
    /// was anything else: the kernel may have merged both.
    fn take(
        &mut self,
        (message, received): (usize, &Received<'_>),
        thread: usize,
        now: u64,
        out: &mut Out,
    ) -> (u64, bool) {
        let run = &self.run;
        let echo = run.echo.load(Relaxed);
        let flow = out.flow(received.from, received.to);
        let mut count = run.counts.of(thread);
        let (mut packets, mut others) = (0, false);
        for (start, segment) in received.segments() {
            let Some(header) = Header::decode(segment) else {
                others = true;
                count.tally.damaged += u64::from(!Message::is_one(segment));
                continue;
            };
            packets += 1;
            let arrived = Arrived { flow: self.flow, len: segment.len(), now };
            count.take(&header, arrived, &mut self.seen);
            if echo && header.run == run.id() {
                // The batch has room for 32 messages of 64 datagrams; larger messages, which a
                // kernel could make of tiny datagrams, lose their tail and are counted as lost.
                let part = Part::Rx { message, start, len: segment.len() };
                let _ = out.tx.push(flow, &[part], 0);
            }
        }
        run.heard.store(now, Relaxed);
        (packets, others)
    }
}

impl Out {
    fn flow(&self, to: SocketAddr, from: Option<IpAddr>) -> Flow {
        Flow { socket: SendSocket(0), to, from, meta: IpMeta::DEFAULT }
    }

    /// Answers a message. In a full batch the answer is lost, and requested again.
    fn answer(&mut self, received: &Received<'_>, message: &Message) {
        let flow = self.flow(received.from, received.to);
        if let Ok(part) = self.tx.arena_write(&message.encode()) {
            let _ = self.tx.push(flow, &[part], 0);
        }
    }
}

/// Handler of control messages.
struct Handler<'a> {
    flows: &'a mut HashMap<Path, Known>,
    runs: &'a Arc<Runs>,
    out: &'a mut Out,
    now: u64,
}

impl Handler<'_> {
    fn handle(&mut self, received: &Received<'_>, payload: &[u8]) {
        let Some(Message { run, body }) = Message::decode(payload) else { return };
        let answer = if let Body::Hello { flow, token } = body {
            Some(self.hello(received, run, (flow, token)))
        } else {
            self.order((received.from, received.to), run, body)
        };
        if let Some(body) = answer {
            self.out.answer(received, &Message { run, body });
        }
    }

    fn hello(&mut self, received: &Received<'_>, run: u32, (flow, token): (u32, u64)) -> Body {
        let from = received.from;
        let expected = self.runs.tokens.of(from);
        if token != expected {
            return Body::Challenge { flow, token: expected };
        }
        let path = (from, received.to);
        match self.flows.get(&path) {
            Some(known) if known.run.id() == run && known.flow == flow && !known.run.ended() => {
                known.run.heard.store(self.now, Relaxed);
                return Body::Welcome { flow };
            }
            Some(_) => {
                // A flow that begins another run has left the one before.
                if let Some(known) = self.flows.remove(&path) {
                    known.run.end();
                    self.runs.leave(1);
                }
            }
            None => {}
        }
        let address = self.runs.address();
        let own = SocketAddr::new(received.to.unwrap_or_else(|| address.ip()), address.port());
        let target = Target { flow, from: own, to: from, channel: None };
        match self.runs.welcome(run, target) {
            Ok(run) => {
                run.heard.store(self.now, Relaxed);
                self.flows.insert(path, Known { run, flow, seen: Seen::default() });
                Body::Welcome { flow }
            }
            Err(reason) => Body::Refused { reason },
        }
    }

    /// Executes a request of a registered flow.
    fn order(&mut self, path: Path, run: u32, body: Body) -> Option<Body> {
        let known = self.flows.get(&path);
        let Some(known) = known.filter(|known| known.run.id() == run && !known.run.ended()) else {
            let reason = Refusal::Unknown;
            return body.is_request().then_some(Body::Refused { reason });
        };
        known.run.heard.store(self.now, Relaxed);
        if let Body::Start { plan, clock } = body {
            Some(match self.runs.start(&known.run, plan, clock) {
                Ok(plan) => Body::Started { plan, clock: self.runs.clock },
                Err(reason) => Body::Refused { reason },
            })
        } else if let Body::Query { number } = body {
            Some(Body::Report { number, report: self.runs.report(&known.run) })
        } else {
            if body == Body::Stop {
                known.run.end();
            }
            None
        }
    }
}
