//! Counters of all processes so far, for the next one. Each goes by its name: one that the other version does not have begins at 0.

use std::collections::HashMap;

use control::{CounterTotals, EarlierTotals, KernelPathTotals, RealmTotals, Series};
use state_format::fields;
use turn_proto::Traffic;
use turn_types::Realm;

/// Counters of all processes so far.
#[derive(Debug)]
pub(super) struct TotalsPart {
    /// The ones that are not 0, by name.
    counters: Vec<(String, u64)>,
    /// Ended allocations of each realm, and their traffic.
    realms: Vec<(Realm, (u64, Traffic))>,
    /// Turns of each worker's loop.
    turns: Vec<u64>,
    /// Packets that the kernel path left to the sockets, by reason.
    passed: Vec<(String, u64)>,
    partial_checksums: u64,
    redirects_lost: Option<u64>,
}

fields!(TotalsPart {
    1 => counters,
    2 => realms,
    3 => turns,
    4 => passed,
    5 => partial_checksums,
    6 => redirects_lost,
});

impl From<EarlierTotals> for TotalsPart {
    fn from(totals: EarlierTotals) -> Self {
        let EarlierTotals { counters, realms, turns, kernel_path } = totals;
        let KernelPathTotals { passed, partial_checksums, redirects_lost } = kernel_path;
        let named = Series::counters().map(|series| (series.name(), counters.value(series)));
        let counters = named.filter(|(_, value)| *value > 0).collect();
        let realm = |(realm, totals)| {
            let RealmTotals { allocations, traffic } = totals;
            (realm, (allocations, traffic))
        };
        let realms = realms.into_iter().map(realm).collect();
        Self { counters, realms, turns, passed, partial_checksums, redirects_lost }
    }
}

impl From<TotalsPart> for EarlierTotals {
    fn from(part: TotalsPart) -> Self {
        let TotalsPart { counters, realms, turns, passed, partial_checksums, redirects_lost } =
            part;
        let named: HashMap<String, Series> =
            Series::counters().map(|series| (series.name(), series)).collect();
        let known = counters.iter().filter_map(|(name, value)| Some((*named.get(name)?, *value)));
        let counters = CounterTotals::from_values(known);
        let realm = |(realm, (allocations, traffic))| (realm, RealmTotals { allocations, traffic });
        let realms = realms.into_iter().map(realm).collect();
        let kernel_path = KernelPathTotals { passed, partial_checksums, redirects_lost };
        Self { counters, realms, turns, kernel_path }
    }
}

#[cfg(test)]
mod tests {
    use control::Leg;
    use state_format::{read_document, write_document};

    use super::*;

    #[test]
    fn counters_come_back_and_unknown_ones_are_left_out() {
        let numbered = Series::counters().zip(1..);
        let traffic = Traffic { to_peer_bytes: 7, ..Traffic::default() };
        let totals = EarlierTotals {
            counters: CounterTotals::from_values(numbered),
            realms: [("a".into(), RealmTotals { allocations: 2, traffic })].into(),
            turns: vec![3, 4],
            kernel_path: KernelPathTotals {
                passed: vec![("no_proof".to_owned(), 5)],
                partial_checksums: 6,
                redirects_lost: None,
            },
        };
        let mut part = TotalsPart::from(totals.clone());
        part.counters.push(("of_a_later_version{}".to_owned(), 9));
        let part: TotalsPart = read_document(&write_document(&part)).unwrap();
        assert_eq!(EarlierTotals::from(part), totals);
    }

    #[test]
    fn gauges_are_not_counters() {
        let live = Series::FlowsOffloaded;
        let received = Series::Packets(Leg::FromClients);
        let counters = CounterTotals::from_values([(live, 5), (received, 6)]);
        let part = TotalsPart::from(EarlierTotals { counters, ..EarlierTotals::default() });
        assert_eq!(part.counters, [(received.name(), 6)]);
    }
}
