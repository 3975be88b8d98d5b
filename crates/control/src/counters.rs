//! Counters of one worker.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use turn_proto::Traffic;
use turn_types::Realm;

use crate::realm_totals::{ByRealm, RealmTotals};
use crate::{Histogram, Series};

/// The numbers of one worker, in cache lines that no other worker writes.
///
/// Only the worker writes, anybody may read at any time. So adding needs no atomic
/// read-modify-write; each number is exact, and numbers read together may be a batch apart.
#[repr(align(128))]
pub struct WorkerCounters {
    cells: [AtomicU64; Series::COUNT],
    /// Turns of the worker's loop: that it lives.
    turns: AtomicU64,
    realms: ByRealm,
}

impl WorkerCounters {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cells: [const { AtomicU64::new(0) }; Series::COUNT],
            turns: AtomicU64::new(0),
            realms: ByRealm::new(),
        }
    }

    /// Counts a turn of the worker's loop. Only the owning worker.
    #[inline]
    pub fn count_turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Turns of the worker's loop so far; wraps.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Adds to a number. Only the owning worker may call this: a second writer would lose counts.
    #[inline]
    pub fn add(&self, series: Series, n: u64) {
        let cell = &self.cells[series.index()];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets a number: a gauge, or a count that is kept elsewhere. Only the owning worker.
    #[inline]
    pub fn set(&self, series: Series, value: u64) {
        self.cells[series.index()].store(value, Ordering::Relaxed);
    }

    /// Adds a value to a histogram. Only the owning worker.
    #[inline]
    pub fn record(&self, histogram: Histogram, value: u64) {
        let bucket = histogram.bounds().partition_point(|bound| *bound < value);
        self.add(Series::Bucket(histogram, bucket), 1);
        self.add(Series::Sum(histogram), value);
    }

    /// Counts an allocation that ended by its realm.
    pub fn count_ended(&self, realm: &Realm, traffic: &Traffic) {
        self.realms.count(realm, traffic);
    }

    /// Adds what ended by realm to the totals of other workers.
    pub(crate) fn add_realms_to(&self, sums: &mut BTreeMap<Realm, RealmTotals>) {
        self.realms.add_to(sums);
    }

    /// The number as of now.
    #[must_use]
    pub fn value(&self, series: Series) -> u64 {
        self.cells[series.index()].load(Ordering::Relaxed)
    }
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WorkerCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCounters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_takes_it() {
        let counters = WorkerCounters::new();
        let histogram = Histogram::Lookup;
        let bound = histogram.bounds()[0];
        for value in [0, bound, bound + 1, 1 << 40] {
            counters.record(histogram, value);
        }
        let of = |bucket| counters.value(Series::Bucket(histogram, bucket));
        assert_eq!((of(0), of(1), of(histogram.buckets() - 1)), (2, 1, 1));
        let sum = counters.value(Series::Sum(histogram));
        assert_eq!(sum, 2 * bound + 1 + (1 << 40));
        assert_eq!(counters.value(Series::Bucket(Histogram::Allocate, 0)), 0);
    }
}
