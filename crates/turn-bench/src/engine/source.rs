//! Packets by UDP sockets: a burst of one flow is one send (`UDP_SEGMENT`) where the kernel has
//! GSO, and datagram by datagram elsewhere.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use linux_net::{Flow, Part, RxBatch, SendError, SendSocket, SendStats, TxBatch, UdpSocket};
use stun_wire::{CHANNEL_HEADER_LEN, write_channel_header};
use turn_types::IpMeta;

use crate::engine::backend::{Gauge, Sent, Source, Target};
use crate::engine::clock;
use crate::engine::pace::{Due, Pacer};
use crate::engine::plan::Plan;
use crate::packet::{HEADER, Header};

/// Bursts between checks for the end of the run.
const BURSTS_PER_LOOK: u64 = 16;

/// The longest sleep: a halt is noticed within it.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Zeros behind the header of every packet.
static FILLER: [u8; 65_536] = [0; 65_536];

/// Sends from sockets: each flow from its own, or all from one.
#[derive(Debug)]
pub(crate) struct SocketSource {
    sockets: Vec<UdpSocket>,
    ways: Vec<Way>,
    /// Number of flows, from the first, in the next run.
    active: usize,
    tx: TxBatch,
    /// An empty batch, as flushing wants one.
    rx: RxBatch,
    stats: SendStats,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
struct Way {
    target: Target,
    /// Index of the socket.
    socket: usize,
    sequence: u32,
}

impl SocketSource {
    /// Sends every flow from a socket of its own.
    #[must_use]
    pub(crate) fn of_sessions(flows: Vec<(Target, UdpSocket)>) -> Self {
        let (targets, sockets): (Vec<_>, Vec<_>) = flows.into_iter().unzip();
        let ways = targets.into_iter().enumerate();
        let ways = ways.map(|(socket, target)| Way { target, socket, sequence: 0 });
        Self::new(sockets, ways.collect())
    }

    /// Sends all flows from one socket.
    #[must_use]
    pub(crate) fn of_peer(socket: UdpSocket, targets: &[Target]) -> Self {
        let way = |&target| Way { target, socket: 0, sequence: 0 };
        Self::new(vec![socket], targets.iter().map(way).collect())
    }

    fn new(sockets: Vec<UdpSocket>, ways: Vec<Way>) -> Self {
        let active = ways.len();
        let (tx, rx) = (TxBatch::new(), RxBatch::new(1));
        Self { sockets, ways, active, tx, rx, stats: SendStats::default() }
    }

    /// Lets only flows below this number take part in runs.
    pub(crate) fn restrict(&mut self, flows: u32) {
        // The numbers of a source ascend.
        self.active = self.ways.partition_point(|way| way.target.flow < flows);
    }

    /// The flows that take part.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> + '_ {
        self.ways[..self.active].iter().map(|way| way.target)
    }

    /// Sends a payload on the flow at `index`. Whether it arrives is not known, nor whether the
    /// kernel took it.
    pub(crate) fn send_one(&mut self, index: usize, payload: &[u8]) {
        let Self { ways, tx, .. } = self;
        let way = &ways[index];
        let mut prefix = [0; CHANNEL_HEADER_LEN];
        let prefix = channel_header(way.target, payload.len(), &mut prefix);
        // An empty batch has room for one message.
        if let (Ok(prefix), Ok(payload)) = (tx.arena_write(prefix), tx.arena_write(payload)) {
            let _ = tx.push(way.flow(), &[prefix, payload], 0);
        }
        self.flush();
    }

    /// Sends the next burst of a flow.
    fn burst(&mut self, index: usize, plan: &Plan) -> Burst {
        let size = usize::from(plan.spec.size).max(HEADER);
        let way = &mut self.ways[index];
        let packets = plan.spec.shape.burst_of(way.target.flow);
        let mut prefix = [0; CHANNEL_HEADER_LEN];
        let prefix = channel_header(way.target, size, &mut prefix);
        let start = prefix.len();
        let mut head = [0; CHANNEL_HEADER_LEN + HEADER];
        head[..start].copy_from_slice(prefix);
        let filler = self.tx.arena_write(&FILLER[..size - HEADER]);
        let flow = way.flow();
        let at = clock::now();
        for _ in 0..packets {
            let Target { flow: number, .. } = way.target;
            let header = Header { run: plan.run, flow: number, sequence: way.sequence, sent: at };
            way.sequence = way.sequence.wrapping_add(1);
            head[start..start + HEADER].copy_from_slice(&header.encode());
            // An empty batch has room for a burst: 64 headers and one filler.
            if let (Ok(head), Ok(filler)) = (self.tx.arena_write(&head[..start + HEADER]), filler) {
                let parts: &[Part] = if filler.is_empty() { &[head] } else { &[head, filler] };
                let _ = self.tx.push(flow, parts, 0);
            }
        }
        let blocked = self.flush();
        let refused = std::mem::take(&mut self.stats.failed);
        Burst { at, sent: u64::from(packets) - refused, refused, blocked }
    }

    /// Flushes the batch; `true` when the kernel's queue is full.
    fn flush(&mut self) -> bool {
        let mut blocked = false;
        self.tx.flush(&self.rx, &self.sockets, &mut self.stats, |_, error| {
            blocked |= matches!(error, SendError::WouldBlock | SendError::NoBuffers);
        });
        blocked
    }
}

/// Result of a burst: time, packets taken and refused by the kernel, and a full queue.
struct Burst {
    at: u64,
    sent: u64,
    refused: u64,
    blocked: bool,
}

impl Way {
    const fn flow(&self) -> Flow {
        let Self { target, socket, .. } = self;
        let from = if target.from.ip().is_unspecified() || target.channel.is_some() {
            None
        } else {
            Some(target.from.ip())
        };
        Flow { socket: SendSocket(*socket as u64), to: target.to, from, meta: IpMeta::DEFAULT }
    }
}

/// The bytes in front of a payload of `len` bytes.
fn channel_header(target: Target, len: usize, out: &mut [u8; CHANNEL_HEADER_LEN]) -> &[u8] {
    match (target.channel, u16::try_from(len)) {
        (Some(channel), Ok(len)) => {
            write_channel_header(out, channel, len);
            out
        }
        _ => &[],
    }
}

impl Source for SocketSource {
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent> {
        let mut done = Sent::default();
        if self.active == 0 {
            return Ok(done);
        }
        self.ways.iter_mut().for_each(|way| way.sequence = 0);
        let mut pacer = Pacer::new(plan, u32::try_from(self.active).unwrap_or(u32::MAX));
        let mut turn = 0;
        while !gauge.halted() {
            let bursts = match pacer.due(clock::now()) {
                Due::Over => break,
                Due::At(time) => {
                    sleep_until(time);
                    continue;
                }
                Due::Now(bursts) => bursts.min(BURSTS_PER_LOOK),
            };
            for _ in 0..bursts {
                let burst = self.burst(turn, plan);
                pacer.sent();
                turn = (turn + 1) % self.active;
                if plan.window.contains(burst.at) {
                    done.sent += burst.sent;
                    done.refused += burst.refused;
                }
                gauge.sent.fetch_add(burst.sent, Relaxed);
                if burst.blocked && plan.spec.rate.is_none() {
                    // It drains while other threads work.
                    thread::yield_now();
                }
            }
        }
        let (missed, scheduled) = pacer.finish();
        (done.missed, done.scheduled) = (plan.packets(missed), plan.packets(scheduled));
        Ok(done)
    }
}

/// Sleeps until `time`, or a part of it. The kernel wakes some 50 µs late; bursts due by then are
/// sent together, as from a network card.
pub(super) fn sleep_until(time: u64) {
    let left = Duration::from_nanos(time.saturating_sub(clock::now()));
    thread::sleep(left.min(SLEEP_MAX));
}
