//! Ended allocations by realm, for tenants' accounts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use state_format::fields;
use turn_proto::Traffic;
use turn_types::Realm;

/// Realms that are counted by name at one worker: as many as may be configured, some of which were
/// others before a reload. The allocations of more are in the totals of the server alone.
const REALMS_MAX: usize = 8192;

/// Totals of a realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealmTotals {
    /// Allocations that ended.
    pub allocations: u64,
    /// Traffic that they relayed.
    pub traffic: Traffic,
}

fields!(RealmTotals { 1 => allocations, 2 => traffic });

impl RealmTotals {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.traffic.add(&other.traffic);
    }
}

/// The totals of one worker. Behind a lock that it takes at the end of an allocation, and a scrape
/// once for a copy.
pub(crate) struct ByRealm(Mutex<BTreeMap<Realm, RealmTotals>>);

impl ByRealm {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Counts an allocation that ended.
    pub(crate) fn count(&self, realm: &Realm, traffic: &Traffic) {
        let mut realms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if realms.len() >= REALMS_MAX && !realms.contains_key(realm) {
            return;
        }
        let totals = realms.entry(realm.clone()).or_default();
        totals.add(&RealmTotals { allocations: 1, traffic: *traffic });
    }

    /// Adds the totals to those of other workers.
    pub(crate) fn add_to(&self, sums: &mut BTreeMap<Realm, RealmTotals>) {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (realm, totals) in own {
            sums.entry(realm).or_default().add(&totals);
        }
    }
}

impl fmt::Debug for ByRealm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRealm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_over_workers_and_are_bounded() {
        let workers = [ByRealm::new(), ByRealm::new()];
        let (a, b): (Realm, Realm) = ("a".into(), "b".into());
        let traffic = Traffic { to_peer_bytes: 7, ..Traffic::default() };
        for (worker, realm) in [(0, &a), (0, &a), (1, &a), (1, &b)] {
            workers[worker].count(realm, &traffic);
        }
        for n in 0..REALMS_MAX {
            workers[0].count(&n.to_string().as_str().into(), &traffic);
        }
        workers[0].count(&a, &traffic);
        let mut sums = BTreeMap::new();
        workers.iter().for_each(|worker| worker.add_to(&mut sums));
        assert_eq!((sums[&a].allocations, sums[&a].traffic.to_peer_bytes), (4, 28));
        assert_eq!((sums[&b].allocations, sums.len()), (1, REALMS_MAX + 1));
    }
}
