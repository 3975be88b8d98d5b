//! Packets by connections: the due bursts of a flow are one write of a stream, in TLS one record;
//! over DTLS flows take turns with every burst, and each packet is a datagram.
//!
//! Packets for a full connection are refused, like datagrams for a full queue, and not sent later:
//! late media is of no use.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use anyhow::{Context as _, Result};
use client_driver::SharedConnection;
use stun_wire::{CHANNEL_HEADER_LEN, padded_len, write_channel_header};

use crate::engine::backend::{Gauge, Sent, Source, Target};
use crate::engine::clock;
use crate::engine::pace::{Due, Pacer};
use crate::engine::plan::Plan;
use crate::engine::source::sleep_until;
use crate::packet::{HEADER, Header};

/// Bursts taken off the schedule at once: the due bursts of a stream are sent together.
const BURSTS_PER_LOOK: u64 = 1024;

/// The same where there is no schedule, and for datagrams.
const BURSTS_FLAT_OUT: u64 = 16;

/// Most bytes of a write of several bursts: one TLS record.
const WRITE_MAX: usize = 16 * 1024;

/// Sends each flow by a connection of its own.
#[derive(Debug)]
pub(crate) struct ConnectionSource {
    ways: Vec<Way>,
    /// Number of flows, from the first, in the next run.
    active: usize,
    /// Each packet is a datagram.
    datagrams: bool,
    /// Messages of one write.
    messages: Vec<u8>,
}

/// One flow.
#[derive(Debug)]
struct Way {
    target: Target,
    connection: SharedConnection,
    sequence: u32,
}

/// Packets of a flow's turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    at: u64,
    sent: u64,
    refused: u64,
}

impl ConnectionSource {
    pub(crate) fn new(flows: Vec<(Target, SharedConnection)>) -> Self {
        let way = |(target, connection)| Way { target, connection, sequence: 0 };
        let ways: Vec<_> = flows.into_iter().map(way).collect();
        let datagrams = ways.iter().any(|way| way.connection.lock().sends_datagrams());
        let messages = Vec::with_capacity(2 * WRITE_MAX);
        Self { active: ways.len(), ways, datagrams, messages }
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

    /// Sends a payload on the flow at `index`, now or when the connection takes it.
    pub(crate) fn send_one(&mut self, index: usize, payload: &[u8]) {
        let Self { ways, messages, .. } = self;
        messages.clear();
        append(messages, ways[index].target, payload, 0);
        // A broken connection is reported by its receiver, and lost queries are repeated.
        let _ = ways[index].connection.lock().send(messages);
    }

    /// Sends the next bursts of a flow.
    fn turn(&mut self, index: usize, bursts: u64, plan: &Plan) -> Result<Turn> {
        let size = usize::from(plan.spec.size).max(HEADER);
        let Self { ways, messages, .. } = self;
        let Way { target, connection, sequence } = &mut ways[index];
        let flow = target.flow;
        let burst = u64::from(plan.spec.shape.burst_of(flow));
        let mut turn = Turn { at: clock::now(), ..Turn::default() };
        let mut connection = connection.lock();
        let mut packets = 0;
        messages.clear();
        for number in 1..=bursts {
            for _ in 0..burst {
                let header = Header { run: plan.run, flow, sequence: *sequence, sent: turn.at };
                *sequence = sequence.wrapping_add(1);
                append(messages, *target, &header.encode(), size - HEADER);
            }
            packets += burst;
            let per_burst = messages.len() / (packets / burst) as usize;
            if number == bursts || messages.len() + per_burst > WRITE_MAX {
                let taken = connection.offer(messages, packets);
                let taken = taken.with_context(|| format!("session {flow}"))?;
                turn.sent += taken;
                turn.refused += packets - taken;
                packets = 0;
                messages.clear();
            }
        }
        Ok(turn)
    }
}

/// A payload with zeros behind it, as ChannelData of a stream: padded to four bytes.
fn append(messages: &mut Vec<u8>, target: Target, payload: &[u8], zeros: usize) {
    let (len, begin) = (payload.len() + zeros, messages.len());
    if let (Some(channel), Ok(len)) = (target.channel, u16::try_from(len)) {
        let mut header = [0; CHANNEL_HEADER_LEN];
        write_channel_header(&mut header, channel, len);
        messages.extend_from_slice(&header);
    }
    messages.extend_from_slice(payload);
    messages.resize(begin + padded_len(CHANNEL_HEADER_LEN + len), 0);
}

impl Source for ConnectionSource {
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent> {
        let mut done = Sent::default();
        let Ok(active @ 1..) = u32::try_from(self.active) else { return Ok(done) };
        self.ways.iter_mut().for_each(|way| way.sequence = 0);
        let mut pacer = Pacer::new(plan, active);
        let active = u64::from(active);
        let together = if self.datagrams { active.min(BURSTS_FLAT_OUT) } else { BURSTS_PER_LOOK };
        let mut next = 0;
        while !gauge.halted() {
            let bursts = match pacer.due(clock::now()) {
                Due::Over => break,
                Due::At(time) => {
                    sleep_until(time);
                    continue;
                }
                Due::Now(_) if plan.spec.rate.is_none() => together.min(BURSTS_FLAT_OUT),
                Due::Now(bursts) => bursts.min(together),
            };
            let mut blocked = false;
            for place in 0..bursts.min(active) {
                // The flow's share of the due bursts; the first in turn have one more.
                let part = (bursts - place).div_ceil(active);
                let turn = self.turn(((next + place) % active) as usize, part, plan)?;
                (0..part).for_each(|_| pacer.sent());
                if plan.window.contains(turn.at) {
                    done.sent += turn.sent;
                    done.refused += turn.refused;
                }
                gauge.sent.fetch_add(turn.sent, Relaxed);
                blocked |= turn.refused > 0;
            }
            next = (next + bursts) % active;
            if blocked && plan.spec.rate.is_none() {
                // It drains while other threads work.
                thread::yield_now();
            }
        }
        let (missed, scheduled) = pacer.finish();
        (done.missed, done.scheduled) = (plan.packets(missed), plan.packets(scheduled));
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use stun_wire::{ChannelNumber, Cut, channel_data, next_message};

    use super::*;

    #[test]
    fn messages_are_padded_and_their_length_is_not() {
        let unused = "127.0.0.1:9".parse().unwrap();
        let channel = ChannelNumber::new(0x4001);
        let target = Target { flow: 0, from: unused, to: unused, channel };
        let mut messages = Vec::new();
        for zeros in 0..4 {
            messages.clear();
            append(&mut messages, target, b"abc", zeros);
            let Cut::Message { len, padded_len } = next_message(&messages) else {
                panic!("{messages:?}");
            };
            assert_eq!((len, padded_len), (7 + zeros, messages.len()));
            assert_eq!(channel_data(&messages[..len]).unwrap().data[..3], *b"abc");
            assert!(messages.len().is_multiple_of(4));
        }
    }
}
