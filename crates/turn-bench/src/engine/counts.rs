//! Counters of the receiving threads of one end, and their sum.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use crate::engine::backend::Sink;
use crate::engine::plan::Plan;
use crate::engine::tally::{Count, Tally};

/// One thread's counters, on cache lines of their own. The thread takes the lock once per received
/// message; otherwise only the sum does.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<Count>);

/// The counters of all threads.
#[derive(Debug)]
pub(crate) struct Counts {
    places: Vec<Place>,
}

impl Counts {
    /// Counters for `threads`.
    #[must_use]
    pub(crate) fn new(threads: usize) -> Self {
        Self { places: (0..threads).map(|_| Place::default()).collect() }
    }

    /// The counters of one thread. They are whole after a panic of that thread.
    ///
    /// # Panics
    /// Like slice indexing.
    pub(crate) fn of(&self, thread: usize) -> MutexGuard<'_, Count> {
        self.places[thread].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Count>> {
        (0..self.places.len()).map(|thread| self.of(thread))
    }
}

impl Sink for Counts {
    fn expect(&self, run: u32, size: u16) -> Result<()> {
        self.each().for_each(|mut count| count.begin(run, size));
        Ok(())
    }

    fn begin(&self, plan: &Plan, one_clock: bool) -> Result<()> {
        for mut count in self.each() {
            ensure!(
                count.early < plan.window.start,
                "packets that count came before it was known when they begin to: the way to the \
                 peer and back takes too long for this warm-up, give --warm-up more"
            );
            count.window = Some(plan.window);
            count.one_clock = one_clock;
            count.bulk = plan.spec.shape.is_bulk(0).then_some(0);
        }
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let mut sum = Tally::new();
        self.each().for_each(|count| sum.add(&count.tally));
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::tally::{Arrived, Seen};
    use crate::packet::Header;
    use crate::traffic::{Direction, Shape, TrafficSpec};

    fn plan() -> Plan {
        let spec = TrafficSpec {
            shape: Shape::Audio,
            direction: Direction::PeerToClient,
            size: 100,
            rate: None,
            warm_up: Duration::from_nanos(1000),
            duration: Duration::from_nanos(1000),
        };
        Plan::new(7, &spec, 2, 0)
    }

    fn take(counts: &Counts, thread: usize, sent: u64) {
        let header = Header { run: 7, flow: 0, sequence: 0, sent };
        let arrived = Arrived { flow: 0, len: 100, now: sent + 5 };
        counts.of(thread).take(&header, arrived, &mut Seen::default());
    }

    #[test]
    fn the_sum_is_over_all_threads_and_one_run() {
        let counts = Counts::new(2);
        counts.expect(7, 100).unwrap();
        take(&counts, 0, 999);
        counts.begin(&plan(), true).unwrap();
        take(&counts, 0, 1000);
        take(&counts, 1, 1000);
        assert_eq!(counts.tally().unwrap().delivered, 2);
        counts.expect(8, 100).unwrap();
        assert_eq!(counts.tally().unwrap().delivered, 0);
    }

    #[test]
    fn packets_that_counted_before_they_could_be_counted_spoil_the_run() {
        let counts = Counts::new(2);
        counts.expect(7, 100).unwrap();
        take(&counts, 1, 1000);
        assert!(counts.begin(&plan(), true).is_err());
    }
}
