//! Counters of all processes so far, for the next one. Each goes by its name: one that the other
//! version does not have begins at 0.
//!
//! They are a message within a message: calls do not end for counters that another version writes
//! in another form.

use std::collections::HashMap;

use control::{CounterTotals, EarlierTotals, KernelPathTotals, RealmTotals, Series};
use state_format::{Malformed, Reader, Value as _, Writer, fields};
use turn_proto::Traffic;
use turn_types::Realm;

use super::messages::Bytes;

/// The counters as the next process gets them.
pub(super) fn write(totals: EarlierTotals) -> Bytes {
    let mut out = Writer::new();
    TotalsPart::from(totals).write(&mut out);
    Bytes(out.into_bytes())
}

/// Reads the counters of the process before.
///
/// # Errors
/// They are of another form.
pub(super) fn read(Bytes(bytes): &Bytes) -> Result<EarlierTotals, Malformed> {
    Reader::new(bytes).last().map(|part: TotalsPart| part.into())
}

/// Counters of all processes so far.
#[derive(Debug)]
struct TotalsPart {
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
        let known = counters.iter().filter_map(|(name, value)| {
            let series = named.get(name).copied().or_else(|| Series::bucket_of_name(name));
            Some((series?, *value))
        });
        let counters = CounterTotals::from_values(known);
        let realm = |(realm, (allocations, traffic))| (realm, RealmTotals { allocations, traffic });
        let realms = realms.into_iter().map(realm).collect();
        let kernel_path = KernelPathTotals { passed, partial_checksums, redirects_lost };
        Self { counters, realms, turns, kernel_path }
    }
}

#[cfg(test)]
mod tests {
    use control::{Histogram, Leg};

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
        let mut out = Writer::new();
        part.write(&mut out);
        assert_eq!(read(&Bytes(out.into_bytes())), Ok(totals.clone()));
        assert_eq!(read(&write(totals.clone())), Ok(totals));
    }

    #[test]
    fn values_of_buckets_with_other_bounds_add_up_in_the_next_greater_ones() {
        let bucket = |index| Series::Bucket(Histogram::SessionBytes, index);
        let counters = CounterTotals::from_values([(bucket(1), 2), (bucket(2), 30)]);
        let mut part = TotalsPart::from(EarlierTotals { counters, ..EarlierTotals::default() });
        for (bound, count) in [("500", 400), ("1001", 5000), ("+Inf", 60_000)] {
            part.counters.push((format!("session_bytes_bucket{{le={bound}}}"), count));
        }
        let counters = EarlierTotals::from(part).counters;
        let last = Histogram::SessionBytes.buckets() - 1;
        let counted = [1, 2, last].map(|index| counters.value(bucket(index)));
        assert_eq!(counted, [402, 5030, 60_000]);
        assert_eq!(counters.iter().map(|(_, count)| count).sum::<u64>(), 65_432);
    }

    #[test]
    fn counters_of_another_form_are_not_read() {
        let bytes = write(EarlierTotals { turns: vec![1], ..EarlierTotals::default() }).0;
        for len in 0..bytes.len() {
            assert!(read(&Bytes(bytes[..len].to_vec())).is_err(), "{len} bytes");
        }
        let unknown_field = vec![6, 0, 0, 0, 200, 1, 0, 0, 0, 7];
        assert_eq!(read(&Bytes(unknown_field)), Err(Malformed::UnknownField(200)));
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
