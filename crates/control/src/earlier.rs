//! Counters that continue in the successor.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use state_format::fields;
use turn_types::Realm;

use crate::{CounterTotals, OffloadWatch, RealmTotals};

/// Counters of all processes of a server so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierTotals {
    /// Of the workers. The gauges among them mean nothing.
    pub counters: CounterTotals,
    /// Allocations that ended, by realm.
    pub realms: BTreeMap<Realm, RealmTotals>,
    /// Turns of each worker's loop.
    pub turns: Vec<u64>,
    /// Of the programs of the kernel path.
    pub kernel_path: KernelPathTotals,
}

/// Counters of the programs of the kernel path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPathTotals {
    /// Packets that they left to the sockets, by reason.
    pub passed: Vec<(String, u64)>,
    /// Packets with partial checksums, from senders on the same machine.
    pub partial_checksums: u64,
    /// Frames that did not leave; `None`: it is not known.
    pub redirects_lost: Option<u64>,
}

fields!(EarlierTotals { 1 => counters, 2 => realms, 3 => turns, 4 => kernel_path });
fields!(KernelPathTotals { 1 => passed, 2 => partial_checksums, 3 => redirects_lost });

impl KernelPathTotals {
    /// As of now.
    pub fn of(watch: &dyn OffloadWatch) -> Self {
        let passed = watch.passed().into_iter();
        Self {
            passed: passed.map(|(reason, count)| (reason.to_owned(), count)).collect(),
            partial_checksums: watch.partial_checksums(),
            redirects_lost: watch.redirects_lost(),
        }
    }

    /// Adds the counters of earlier processes, as far as this one counts the same.
    fn add(&mut self, earlier: &Self) {
        let before: BTreeMap<&str, u64> =
            earlier.passed.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
        for (reason, count) in &mut self.passed {
            *count += before.get(reason.as_str()).copied().unwrap_or_default();
        }
        self.partial_checksums += earlier.partial_checksums;
        if let Some(lost) = &mut self.redirects_lost {
            *lost += earlier.redirects_lost.unwrap_or_default();
        }
    }
}

/// Counters of earlier processes.
#[derive(Debug, Default)]
pub(crate) struct Earlier(Mutex<EarlierTotals>);

impl Earlier {
    fn totals(&self) -> MutexGuard<'_, EarlierTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, earlier: EarlierTotals) {
        *self.totals() = earlier;
    }

    /// Adds them to all counters of this process; without a kernel path its counters stay.
    pub(crate) fn add(&self, own: EarlierTotals, has_kernel_path: bool) -> EarlierTotals {
        EarlierTotals {
            counters: self.counters(own.counters),
            realms: self.realms(own.realms),
            turns: self.turns(own.turns),
            kernel_path: if has_kernel_path {
                self.kernel_path(own.kernel_path)
            } else {
                self.totals().kernel_path.clone()
            },
        }
    }

    pub(crate) fn counters(&self, mut own: CounterTotals) -> CounterTotals {
        own.add_counters(&self.totals().counters);
        own
    }

    pub(crate) fn realms(
        &self,
        mut own: BTreeMap<Realm, RealmTotals>,
    ) -> BTreeMap<Realm, RealmTotals> {
        for (realm, totals) in &self.totals().realms {
            own.entry(realm.clone()).or_default().add(totals);
        }
        own
    }

    pub(crate) fn turns(&self, mut own: Vec<u64>) -> Vec<u64> {
        let earlier = self.totals();
        let both = own.iter_mut().zip(&earlier.turns);
        both.for_each(|(turns, before)| *turns = turns.wrapping_add(*before));
        own
    }

    pub(crate) fn kernel_path(&self, mut own: KernelPathTotals) -> KernelPathTotals {
        own.add(&self.totals().kernel_path);
        own
    }
}

#[cfg(test)]
mod tests {
    use state_format::{Bytes, Reader};
    use turn_proto::Traffic;
    use turn_types::Transport;

    use super::*;
    use crate::{Histogram, Leg, Series, WorkerCounters};

    const LIVE: Series = Series::AllocationsLive(Transport::Udp);
    const RECEIVED: Series = Series::Packets(Leg::FromClients);
    const BUCKET: Series = Series::Bucket(Histogram::SessionBytes, 3);

    fn own(count: u64) -> EarlierTotals {
        let worker = WorkerCounters::new();
        for series in [LIVE, RECEIVED, BUCKET] {
            worker.add(series, count);
        }
        let traffic = Traffic { to_peer_bytes: count, ..Traffic::default() };
        EarlierTotals {
            counters: CounterTotals::of([&worker]),
            realms: [("a".into(), RealmTotals { allocations: 1, traffic })].into(),
            turns: vec![count],
            kernel_path: KernelPathTotals {
                passed: vec![("no_proof".to_owned(), count)],
                partial_checksums: count,
                redirects_lost: Some(count),
            },
        }
    }

    fn counted(totals: &CounterTotals) -> [u64; 3] {
        [LIVE, RECEIVED, BUCKET].map(|series| totals.value(series))
    }

    #[test]
    fn a_third_process_has_the_counters_of_both_before_and_gauges_of_its_own() {
        let [first, second, third] = [(); 3].map(|()| Earlier::default());
        second.set(first.add(own(5), true));
        assert_eq!(counted(&second.counters(own(2).counters)), [2, 7, 7]);
        third.set(second.add(own(2), true));
        let EarlierTotals { counters, realms, turns, kernel_path } = own(1);
        assert_eq!(counted(&third.counters(counters)), [1, 8, 8]);
        let realm = &third.realms(realms)["a"];
        assert_eq!((realm.allocations, realm.traffic.to_peer_bytes), (3, 8));
        assert_eq!(third.turns(turns), [8]);
        let KernelPathTotals { passed, partial_checksums, redirects_lost } =
            third.kernel_path(kernel_path);
        assert_eq!(passed, [("no_proof".to_owned(), 8)]);
        assert_eq!((partial_checksums, redirects_lost), (8, Some(8)));
    }

    #[test]
    fn totals_of_another_form_are_not_read() {
        let totals = EarlierTotals { counters: CounterTotals::default(), ..own(5) };
        let bytes = Bytes::of(&totals).0;
        assert_eq!(Reader::new(&bytes).last(), Ok(totals));
        for len in 0..bytes.len() {
            assert!(Reader::new(&bytes[..len]).last::<EarlierTotals>().is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_process_without_a_kernel_path_passes_its_counters_on() {
        let server = Earlier::default();
        server.set(own(5));
        let none = EarlierTotals { kernel_path: KernelPathTotals::default(), ..own(1) };
        assert_eq!(server.add(none, false).kernel_path, own(5).kernel_path);
    }

    #[test]
    fn reasons_and_workers_that_are_not_known_are_left_out() {
        let server = Earlier::default();
        server.set(own(5));
        let passed = vec![("of_a_later_version".to_owned(), 3)];
        let shown =
            server.kernel_path(KernelPathTotals { passed: passed.clone(), ..own(1).kernel_path });
        assert_eq!(shown.passed, passed);
        assert_eq!(server.turns(vec![1, 1]), [6, 1]);
    }
}
