//! The numbers of all workers together.

use std::collections::HashMap;

use state_format::{Malformed, Reader, Value, Writer};
use turn_proto::{DropReason, EndReason, Refusal};
use turn_types::Transport;

use crate::{Fate, Histogram, Kind, Leg, Series, WorkerCounters};

/// Sums over all workers, as of one moment. [`Series::all`] is the list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterTotals {
    values: [u64; Series::COUNT],
}

/// An amount of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
}

/// Form by name, without gauges: a counter that the other version lacks starts at 0.
impl Value for CounterTotals {
    fn write(&self, out: &mut Writer) {
        let named = Series::counters().map(|series| (series.name(), self.value(series)));
        named.filter(|(_, value)| *value > 0).collect::<Vec<_>>().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let named: Vec<(String, u64)> = Value::read(input)?;
        let series: HashMap<String, Series> =
            Series::counters().map(|series| (series.name(), series)).collect();
        let known = named.iter().filter_map(|(name, value)| {
            let series = series.get(name).copied().or_else(|| Series::bucket_of_name(name));
            Some((series?, *value))
        });
        Ok(Self::from_values(known))
    }
}

impl CounterTotals {
    /// Adds up the counters of these workers.
    pub fn of<'a>(workers: impl IntoIterator<Item = &'a WorkerCounters>) -> Self {
        let mut values = [0_u64; Series::COUNT];
        for worker in workers {
            for series in Series::all() {
                let value = &mut values[series.index()];
                *value = value.wrapping_add(worker.value(series));
            }
        }
        Self { values }
    }

    /// Sums that are known by other means; the rest is 0, and several of one series add up.
    pub fn from_values(known: impl IntoIterator<Item = (Series, u64)>) -> Self {
        let mut totals = Self::default();
        for (series, value) in known {
            totals.values[series.index()] = totals.value(series).wrapping_add(value);
        }
        totals
    }

    /// Adds the counters of others, without their gauges.
    pub(crate) fn add_counters(&mut self, others: &Self) {
        for series in Series::counters() {
            let value = &mut self.values[series.index()];
            *value = value.wrapping_add(others.value(series));
        }
    }

    /// One number.
    #[must_use]
    pub const fn value(&self, series: Series) -> u64 {
        self.values[series.index()]
    }

    /// Every number.
    pub fn iter(&self) -> impl Iterator<Item = (Series, u64)> {
        Series::all().map(|series| (series, self.value(series)))
    }

    /// Traffic over the sockets, in one direction on one leg.
    #[must_use]
    pub const fn volume(&self, leg: Leg) -> Volume {
        Volume { packets: self.value(Series::Packets(leg)), bytes: self.value(Series::Bytes(leg)) }
    }

    /// Traffic that the kernel relayed, or handed over, past the sockets, in one direction on one
    /// leg.
    #[must_use]
    pub const fn offloaded(&self, leg: Leg) -> Volume {
        Volume {
            packets: self.value(Series::Offloaded(leg)),
            bytes: self.value(Series::OffloadedBytes(leg)),
        }
    }

    /// All traffic in one direction on one leg, over the sockets and past them.
    #[must_use]
    pub const fn whole(&self, leg: Leg) -> Volume {
        let (sockets, kernel) = (self.volume(leg), self.offloaded(leg));
        Volume {
            packets: sockets.packets.wrapping_add(kernel.packets),
            bytes: sockets.bytes.wrapping_add(kernel.bytes),
        }
    }

    /// Channels that the kernel relays now.
    #[must_use]
    pub const fn flows_offloaded(&self) -> u64 {
        self.value(Series::FlowsOffloaded)
    }

    /// Fates of packets from sockets, by name; the last is `dropped`, the sum of [`Self::drops`].
    pub fn fates(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let dropped = self.drops().map(|(_, n)| n).sum();
        let of = |&fate: &Fate| (fate.label(), self.value(Series::Fate(fate)));
        Fate::ALL.iter().map(of).chain([("dropped", dropped)])
    }

    /// Packets for which nothing was sent, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DropReason::ALL.iter().map(|&reason| (reason.label(), self.value(Series::Drop(reason))))
    }

    /// Requests refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.iter().map(|&reason| (reason.label(), self.value(Series::Refusal(reason))))
    }

    /// Allocations that ended, by reason.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        EndReason::ALL
            .iter()
            .map(|&reason| (reason.label(), self.value(Series::AllocationsEnded(reason))))
    }

    /// Allocations live now.
    #[must_use]
    pub fn allocations_live(&self) -> u64 {
        let of = |&transport| self.value(Series::AllocationsLive(transport));
        Transport::ALL.iter().map(of).sum()
    }

    /// Allocations made since the start of the first process.
    #[must_use]
    pub const fn allocations_created(&self) -> u64 {
        self.value(Series::AllocationsCreated)
    }

    /// Datagrams that the kernel threw away because a receive buffer was full.
    #[must_use]
    pub const fn kernel_drops(&self) -> u64 {
        self.value(Series::KernelDrops)
    }

    /// The buckets of a histogram: inclusive upper bound (the last has none) and count.
    pub fn buckets(&self, histogram: Histogram) -> impl Iterator<Item = (Option<u64>, u64)> {
        (0..histogram.buckets()).map(move |bucket| {
            (histogram.upper_bound(bucket), self.value(Series::Bucket(histogram, bucket)))
        })
    }
}

impl Default for CounterTotals {
    fn default() -> Self {
        Self { values: [0; Series::COUNT] }
    }
}

impl Series {
    /// Every series but the gauges.
    pub fn counters() -> impl Iterator<Item = Self> {
        Self::all().filter(|series| series.family().kind != Kind::Gauge)
    }
}

#[cfg(test)]
mod tests {
    use state_format::Bytes;

    use super::*;

    #[test]
    fn sums_every_series_of_every_worker() {
        let workers = [WorkerCounters::new(), WorkerCounters::new()];
        for series in Series::all() {
            workers[0].set(series, series.index() as u64);
            workers[1].add(series, 1);
        }
        let totals = CounterTotals::of(&workers);
        assert!(totals.iter().all(|(series, value)| value == series.index() as u64 + 1));
        assert_eq!(totals.iter().count(), Series::COUNT);
    }

    #[test]
    fn counters_are_read_by_name_without_unknown_ones_and_gauges() {
        let numbered = Series::counters().zip(1..);
        let totals = CounterTotals::from_values(numbered.chain([(Series::FlowsOffloaded, 5)]));
        let mut named: Vec<(String, u64)> = Bytes::of(&totals).parse().expect("a list of names");
        assert_eq!(named.len(), Series::counters().count());
        named.push(("of_a_later_version{}".to_owned(), 9));
        let read = Bytes::of(&named).parse();
        assert_eq!(read, Ok(CounterTotals::from_values(Series::counters().zip(1..))));
    }

    #[test]
    fn values_of_buckets_with_other_bounds_add_up_in_the_next_greater_ones() {
        let bucket = |index| Series::Bucket(Histogram::SessionBytes, index);
        let named = [(1, 2_u64), (2, 30)].map(|(index, count)| (bucket(index).name(), count));
        let mut named = named.to_vec();
        for (bound, count) in [("500", 400), ("1001", 5000), ("+Inf", 60_000)] {
            named.push((format!("session_bytes_bucket{{le={bound}}}"), count));
        }
        let counters: CounterTotals = Bytes::of(&named).parse().expect("counters");
        let last = Histogram::SessionBytes.buckets() - 1;
        let counted = [1, 2, last].map(|index| counters.value(bucket(index)));
        assert_eq!(counted, [402, 5030, 60_000]);
        assert_eq!(counters.iter().map(|(_, count)| count).sum::<u64>(), 65_432);
    }

    #[test]
    fn counters_are_added_without_gauges() {
        let all = |value| Series::all().map(move |series| (series, value));
        let mut added = CounterTotals::from_values(all(1));
        added.add_counters(&CounterTotals::from_values(all(7)));
        for series in Series::all() {
            let is_gauge = series.family().kind == Kind::Gauge;
            assert_eq!(added.value(series), if is_gauge { 1 } else { 8 }, "{series:?}");
        }
    }

    #[test]
    fn dropped_is_the_sum_of_the_drops() {
        let worker = WorkerCounters::new();
        worker.add(Series::Drop(DropReason::NotStun), 2);
        worker.add(Series::Drop(DropReason::TooLong), 3);
        worker.add(Series::Fate(Fate::Reply), 7);
        let fates: Vec<_> = CounterTotals::of([&worker]).fates().filter(|(_, n)| *n > 0).collect();
        assert_eq!(fates, [("reply", 7), ("dropped", 5)]);
    }
}
