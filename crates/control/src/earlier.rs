//! Counters that go on from process to process, when one takes the place of another.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turn_types::Realm;

use crate::{CounterTotals, OffloadWatch, RealmTotals};

/// Counters of a server at the hand-over to its next process: of all processes so far.
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

/// Counters of the processes before this one, and of this one when another has taken its place.
#[derive(Debug, Default)]
pub(crate) struct Succession(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    earlier: EarlierTotals,
    /// The next process goes on from here: this one shows no other counters any more.
    frozen: Option<EarlierTotals>,
}

impl Succession {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn go_on_from(&self, earlier: EarlierTotals) {
        self.totals().earlier = earlier;
    }

    /// Freezes the counters, which are `own` without the counts of earlier processes; without a
    /// kernel path its counters stay as they were.
    pub(crate) fn freeze(&self, own: EarlierTotals, has_kernel_path: bool) -> EarlierTotals {
        let Totals { earlier, frozen } = &mut *self.totals();
        let EarlierTotals { mut counters, mut realms, mut turns, mut kernel_path } = own;
        counters.add_counters(&earlier.counters);
        add_realms(&mut realms, &earlier.realms);
        add_turns(&mut turns, &earlier.turns);
        if has_kernel_path {
            kernel_path.add(&earlier.kernel_path);
        } else {
            kernel_path = earlier.kernel_path.clone();
        }
        let all = EarlierTotals { counters, realms, turns, kernel_path };
        *frozen = Some(all.clone());
        all
    }

    pub(crate) fn thaw(&self) {
        self.totals().frozen = None;
    }

    pub(crate) fn counters(&self, mut own: CounterTotals) -> CounterTotals {
        let Totals { earlier, frozen } = &*self.totals();
        match frozen {
            Some(frozen) => own.set_counters(&frozen.counters),
            None => own.add_counters(&earlier.counters),
        }
        own
    }

    pub(crate) fn realms(
        &self,
        mut own: BTreeMap<Realm, RealmTotals>,
    ) -> BTreeMap<Realm, RealmTotals> {
        let Totals { earlier, frozen } = &*self.totals();
        if let Some(frozen) = frozen {
            return frozen.realms.clone();
        }
        add_realms(&mut own, &earlier.realms);
        own
    }

    pub(crate) fn turns(&self, mut own: Vec<u64>) -> Vec<u64> {
        let Totals { earlier, frozen } = &*self.totals();
        if let Some(frozen) = frozen {
            return frozen.turns.clone();
        }
        add_turns(&mut own, &earlier.turns);
        own
    }

    pub(crate) fn kernel_path(&self, mut own: KernelPathTotals) -> KernelPathTotals {
        let Totals { earlier, frozen } = &*self.totals();
        if let Some(frozen) = frozen {
            return frozen.kernel_path.clone();
        }
        own.add(&earlier.kernel_path);
        own
    }
}

fn add_realms(to: &mut BTreeMap<Realm, RealmTotals>, more: &BTreeMap<Realm, RealmTotals>) {
    for (realm, totals) in more {
        to.entry(realm.clone()).or_default().add(totals);
    }
}

fn add_turns(to: &mut [u64], more: &[u64]) {
    to.iter_mut().zip(more).for_each(|(turns, before)| *turns = turns.wrapping_add(*before));
}

#[cfg(test)]
mod tests {
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
        let [first, second, third] = [(); 3].map(|()| Succession::default());
        second.go_on_from(first.freeze(own(5), true));
        assert_eq!(counted(&second.counters(own(2).counters)), [2, 7, 7]);
        third.go_on_from(second.freeze(own(2), true));
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
    fn frozen_counters_stay_while_gauges_go_on_until_everything_is_taken_back() {
        let server = Succession::default();
        server.go_on_from(own(5));
        let frozen = server.freeze(own(2), true);
        assert_eq!(counted(&frozen.counters)[1..], [7, 7]);
        let later = own(4);
        assert_eq!(counted(&server.counters(later.counters.clone())), [4, 7, 7]);
        assert_eq!(server.turns(later.turns.clone()), [7]);
        assert_eq!(server.realms(later.realms.clone()), frozen.realms);
        assert_eq!(server.kernel_path(later.kernel_path.clone()), frozen.kernel_path);
        server.thaw();
        assert_eq!(counted(&server.counters(later.counters.clone())), [4, 9, 9]);
        assert_eq!(server.turns(later.turns), [9]);
        assert_eq!(counted(&server.freeze(own(4), true).counters)[1..], [9, 9]);
    }

    #[test]
    fn a_process_without_a_kernel_path_passes_its_counters_on() {
        let server = Succession::default();
        server.go_on_from(own(5));
        let none = EarlierTotals { kernel_path: KernelPathTotals::default(), ..own(1) };
        assert_eq!(server.freeze(none, false).kernel_path, own(5).kernel_path);
    }

    #[test]
    fn reasons_and_workers_that_are_not_known_are_left_out() {
        let server = Succession::default();
        server.go_on_from(own(5));
        let passed = vec![("of_a_later_version".to_owned(), 3)];
        let shown =
            server.kernel_path(KernelPathTotals { passed: passed.clone(), ..own(1).kernel_path });
        assert_eq!(shown.passed, passed);
        assert_eq!(server.turns(vec![1, 1]), [6, 1]);
    }
}
