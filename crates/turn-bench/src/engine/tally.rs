//! Counting packets that arrive, each once.

use hdrhistogram::Histogram;

use crate::engine::plan::Window;
use crate::packet::Header;

/// Latencies are recorded from a nanosecond to a minute, with two digits: the buckets then fit the
/// second-level cache, with an error of at most 1 %.
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;
const LATENCY_DIGITS: u8 = 2;

/// Packets that arrived within the measured time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// All packets of the run, for progress.
    pub received: u64,
    /// Packets without duplicates.
    pub delivered: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets of the run that were changed.
    pub damaged: u64,
    /// Nanoseconds from the sender's call to the receiver's; empty where their clocks differ.
    pub latency: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// An empty tally.
    #[must_use]
    pub fn new() -> Self {
        // The bounds are constants that the histogram accepts, as each test shows.
        let latency = Histogram::new_with_max(LATENCY_NANOS_MAX, LATENCY_DIGITS);
        let latency = latency.expect("valid bounds");
        Self { received: 0, delivered: 0, duplicates: 0, reordered: 0, damaged: 0, latency }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
        // All have the same bounds, by `new`.
        self.latency.add(&other.latency).expect("equal bounds");
    }
}

/// Position of a packet among the earlier ones of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// After all of them.
    InOrder,
    /// Before a later one, for the first time.
    Late,
    /// A duplicate.
    Again,
}

/// Sequence numbers of one flow that arrived: the highest, and a bitmap of the 64 up to it. An
/// older packet counts as late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    highest: u32,
    /// Bit `n` is the packet `n` before the highest. Zero: none at all.
    mask: u64,
}

impl Seen {
    /// Notes a packet. Numbers may wrap.
    pub(crate) const fn note(&mut self, sequence: u32) -> Arrival {
        let ahead = sequence.wrapping_sub(self.highest).cast_signed();
        if self.mask == 0 || ahead > 0 {
            let first = self.mask == 0;
            let kept = if first || ahead >= 64 { 0 } else { self.mask << ahead };
            self.highest = sequence;
            self.mask = kept | 1;
            return Arrival::InOrder;
        }
        let back = ahead.unsigned_abs();
        if back >= 64 {
            return Arrival::Late;
        }
        let bit = 1 << back;
        if self.mask & bit != 0 {
            return Arrival::Again;
        }
        self.mask |= bit;
        Arrival::Late
    }
}

/// Circumstances of a packet's arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// The flow that it came by.
    pub(crate) flow: u32,
    /// Bytes of its payload.
    pub(crate) len: usize,
    /// Time of arrival, in nanoseconds of the monotonic clock.
    pub(crate) now: u64,
}

/// Counters of one thread for one run.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Which run; packets of another are not counted.
    pub(crate) run: u32,
    /// Payload bytes of each packet.
    pub(crate) size: usize,
    /// The measured time; `None` until it is known, and earlier packets are not counted.
    pub(crate) window: Option<Window>,
    /// Sender and receiver have one clock.
    pub(crate) one_clock: bool,
    /// Flow without latency: a bulk transfer.
    pub(crate) bulk: Option<u32>,
    /// The latest time in a packet before the window was known: unless it belongs to the warm-up,
    /// the count is invalid.
    pub(crate) early: u64,
    /// The counts.
    pub(crate) tally: Tally,
}

impl Count {
    /// Begins to count a run.
    pub(crate) fn begin(&mut self, run: u32, size: u16) {
        *self = Self { run, size: usize::from(size), ..Self::default() };
    }

    /// Counts a packet of a flow with this history.
    pub(crate) fn take(&mut self, header: &Header, arrived: Arrived, seen: &mut Seen) {
        if header.run != self.run {
            return;
        }
        self.tally.received += 1;
        let Some(window) = self.window else {
            self.early = self.early.max(header.sent);
            return;
        };
        if header.flow != arrived.flow || arrived.len != self.size {
            self.tally.damaged += 1;
            return;
        }
        let arrival = seen.note(header.sequence);
        if !window.contains(header.sent) {
            return;
        }
        match arrival {
            Arrival::Again => {
                self.tally.duplicates += 1;
                return;
            }
            Arrival::Late => self.tally.reordered += 1,
            Arrival::InOrder => {}
        }
        self.tally.delivered += 1;
        if self.one_clock && self.bulk != Some(header.flow) {
            self.tally.latency.saturating_record(arrived.now.saturating_sub(header.sent).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(sequences: &[u32]) -> Vec<Arrival> {
        let mut seen = Seen::default();
        sequences.iter().map(|&sequence| seen.note(sequence)).collect()
    }

    #[test]
    fn order_is_told_apart() {
        use Arrival::{Again, InOrder, Late};
        assert_eq!(notes(&[0, 1, 2, 2, 1, 3]), [InOrder, InOrder, InOrder, Again, Again, InOrder]);
        assert_eq!(notes(&[0, 3, 1, 2, 1, 4]), [InOrder, InOrder, Late, Late, Again, InOrder]);
        assert_eq!(notes(&[5, 0, 0]), [InOrder, Late, Again], "a flow may begin anywhere");
        assert_eq!(notes(&[0, 0]), [InOrder, Again]);
    }

    #[test]
    fn the_window_is_64_wide() {
        use Arrival::{Again, InOrder, Late};
        assert_eq!(notes(&[0, 63, 0]), [InOrder, InOrder, Again]);
        assert_eq!(notes(&[0, 64, 0, 0]), [InOrder, InOrder, Late, Late]);
        assert_eq!(notes(&[0, 1000, 1000, 937]), [InOrder, InOrder, Again, Late]);
        assert_eq!(notes(&[1, 64, 1]), [InOrder, InOrder, Again]);
        assert_eq!(notes(&[1, 65, 2, 2]), [InOrder, InOrder, Late, Again]);
    }

    #[test]
    fn numbers_wrap() {
        use Arrival::{Again, InOrder, Late};
        assert_eq!(notes(&[u32::MAX, 1, 0, u32::MAX]), [InOrder, InOrder, Late, Again]);
    }

    fn header(sequence: u32, sent: u64) -> Header {
        Header { run: 7, flow: 3, sequence, sent }
    }

    fn counting(window: Option<Window>) -> Count {
        let mut count = Count::default();
        count.begin(7, 100);
        count.window = window;
        count.one_clock = true;
        count
    }

    #[test]
    fn what_was_sent_in_the_window_counts_once() {
        let mut count = counting(Some(Window { start: 1000, end: 2000 }));
        let mut seen = Seen::default();
        for (sequence, sent) in [(0, 999), (1, 1000), (3, 1999), (2, 1500), (2, 1500), (4, 2000)] {
            count.take(
                &header(sequence, sent),
                Arrived { flow: 3, len: 100, now: sent + 50 },
                &mut seen,
            );
        }
        let tally = &count.tally;
        assert_eq!((tally.delivered, tally.duplicates, tally.reordered), (3, 1, 1));
        assert_eq!((tally.latency.len(), tally.latency.max()), (3, 50));
        assert_eq!(tally.damaged, 0);
    }

    #[test]
    fn what_is_not_as_sent_is_damaged_and_other_runs_are_nothing() {
        let mut count = counting(Some(Window { start: 0, end: 2000 }));
        let mut seen = Seen::default();
        count.take(&header(0, 1), Arrived { flow: 4, len: 100, now: 2 }, &mut seen);
        count.take(&header(0, 1), Arrived { flow: 3, len: 99, now: 2 }, &mut seen);
        count.take(
            &Header { run: 6, ..header(0, 1) },
            Arrived { flow: 3, len: 100, now: 2 },
            &mut seen,
        );
        assert_eq!((count.tally.damaged, count.tally.delivered), (2, 0));
        assert_eq!(seen.note(0), Arrival::InOrder, "none of these belongs to the flow");
    }

    #[test]
    fn packets_before_the_window_is_told_are_remembered_not_counted() {
        let mut count = counting(None);
        count.take(&header(0, 55), Arrived { flow: 3, len: 100, now: 60 }, &mut Seen::default());
        assert_eq!((count.early, count.tally.delivered), (55, 0));
    }

    #[test]
    fn clocks_that_differ_give_no_latency() {
        let mut count = counting(Some(Window { start: 0, end: 2000 }));
        count.one_clock = false;
        count.take(&header(0, 55), Arrived { flow: 3, len: 100, now: 10 }, &mut Seen::default());
        assert_eq!((count.tally.delivered, count.tally.latency.len()), (1, 0));
    }

    #[test]
    fn a_bulk_transfer_counts_and_has_no_latency() {
        let mut count = counting(Some(Window { start: 0, end: 2000 }));
        count.bulk = Some(3);
        count.take(&header(0, 55), Arrived { flow: 3, len: 100, now: 90 }, &mut Seen::default());
        assert_eq!((count.tally.delivered, count.tally.latency.len()), (1, 0));
    }

    #[test]
    fn tallies_add_up() {
        let mut count = counting(Some(Window { start: 0, end: 2000 }));
        count.take(&header(0, 10), Arrived { flow: 3, len: 100, now: 30 }, &mut Seen::default());
        let mut sum = count.tally.clone();
        sum.add(&count.tally);
        assert_eq!((sum.delivered, sum.latency.len(), sum.latency.max()), (2, 2, 20));
    }
}
