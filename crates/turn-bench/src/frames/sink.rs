//! Counting the packets of a run where they arrive.

use std::ops::Range;

use anyhow::{Context, Result, bail};
use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use hdrhistogram::Histogram;

use super::histogram::{self, BUCKETS};
use super::object::array;
use crate::engine;

/// Most flows of a run; as in `bpf/sink.h`.
pub(super) const FLOWS_MAX: u32 = 65_536;

/// `struct watched` of `bpf/sink.h`.
type Watched = [u64; 7];

/// `struct tally` of `bpf/sink.h`: nine counters and the buckets of latencies.
type Tally = [u64; 9 + BUCKETS];

/// The counted run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The run, not 0.
    pub run: u32,
    /// Number of flows, at most 65,536.
    pub flows: u32,
    /// Payload bytes of each packet.
    pub size: u16,
    /// Packets are echoed rather than dropped.
    pub reflect: bool,
    /// The measured time, by the sender's monotonic clock in nanoseconds.
    pub window: Range<u64>,
}

/// Packets that arrived.
#[derive(Clone, Debug)]
pub struct SinkTally {
    /// Packets sent within the measured time, each once.
    pub delivered: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets of `delivered` that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packet bytes of `delivered`: without UDP, IP and ChannelData headers.
    pub bytes: u64,
    /// Packets of the run that were changed.
    pub damaged: u64,
    /// Packets of the run sent before or after the measured time.
    pub outside: u64,
    /// Send time of the last packet before the measured time, 0 without one.
    pub early_last: u64,
    /// Packets of another run, which passed.
    pub other_run: u64,
    /// Nanoseconds from when the packet was made to when it arrived, exact to 1 part in 32. It
    /// means nothing where the two ends have not the same clock.
    pub latency: Histogram<u64>,
}

/// The maps of the program that counts.
pub(super) struct Sink {
    watched: Array<MapData, Watched>,
    tallies: PerCpuArray<MapData, Tally>,
    /// Number of runs counted; an empty map holds 0.
    count: u32,
}

impl Sink {
    pub(super) fn of(object: &mut Ebpf) -> Result<Self> {
        let watched = array(object, "watched")?;
        let map = object.take_map("tallies").context("there is no map tallies")?;
        Ok(Self { watched, tallies: PerCpuArray::try_from(map)?, count: 0 })
    }

    /// Counts the packets of a run from here on, from nothing.
    ///
    /// # Errors
    /// The run is 0, or has more flows than can be followed.
    pub(super) fn begin(&mut self, watch: &Watch) -> Result<()> {
        if watch.run == 0 {
            bail!("run 0 is none");
        }
        if watch.flows > FLOWS_MAX {
            bail!("{} flows: {FLOWS_MAX} can be followed on a link", watch.flows);
        }
        self.end()?;
        let cores = nr_cpus().map_err(|(file, error)| error_in(file, error))?;
        let nothing = PerCpuValues::try_from(vec![[0; 9 + BUCKETS]; cores])?;
        self.tallies.set(0, nothing, 0).context("cannot clear the counters")?;
        self.count = self.count.wrapping_add(1).max(1);
        self.write(watch)
    }

    /// Sets the window of the watched run, once it is known.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub(super) fn write(&mut self, watch: &Watch) -> Result<()> {
        let words = [
            u64::from(watch.run),
            u64::from(self.count),
            u64::from(watch.flows),
            u64::from(watch.size),
            u64::from(watch.reflect),
            watch.window.start,
            watch.window.end,
        ];
        self.watched.set(0, words, 0).context("cannot write which run is watched")
    }

    /// Watches no run any more: everything passes.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub(super) fn end(&mut self) -> Result<()> {
        self.watched.set(0, [0; 7], 0).context("cannot write that no run is watched")
    }

    /// Counts so far of the last run.
    ///
    /// # Errors
    /// The kernel does not let us read our own map.
    pub(super) fn read(&self) -> Result<SinkTally> {
        let per_core = self.tallies.get(&0, 0).context("cannot read the counters")?;
        let mut sum = SinkTally::new();
        for tally in per_core.iter() {
            sum.add(tally);
        }
        Ok(sum)
    }
}

impl SinkTally {
    fn new() -> Self {
        Self {
            delivered: 0,
            duplicates: 0,
            reordered: 0,
            bytes: 0,
            damaged: 0,
            outside: 0,
            early_last: 0,
            other_run: 0,
            // With the bounds of all others.
            latency: engine::Tally::new().latency,
        }
    }

    fn add(&mut self, tally: &Tally) {
        let [delivered, duplicates, reordered, bytes, max, rest @ ..] = tally;
        let [damaged, outside, early_last, other_run, buckets @ ..] = rest;
        self.delivered += delivered;
        self.duplicates += duplicates;
        self.reordered += reordered;
        self.bytes += bytes;
        self.damaged += damaged;
        self.outside += outside;
        self.early_last = self.early_last.max(*early_last);
        self.other_run += other_run;
        histogram::add(&mut self.latency, buckets, *max);
    }
}

fn error_in(file: &str, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot read {file}"))
}

#[cfg(test)]
mod tests;
