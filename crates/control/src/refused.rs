//! Recent refusals as an operator is told of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use turn_proto::{Refusal, RefusedRequest};
use turn_types::{Instant, Prefix};

/// Requests of one user and network that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The latest of them.
    pub latest: RefusedRequest,
    /// Time of the first.
    pub first: Instant,
    /// Time of the latest.
    pub last: Instant,
    /// Their number.
    pub count: u64,
    /// True if requests without a proven user claimed other names than the latest.
    pub other_claims: bool,
}

/// Subject of refusals: those of one user (or of clients that proved to be none), network and
/// reason belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusedSubject {
    user: Option<Arc<str>>,
    customer: Prefix,
    reason: Refusal,
}

impl RefusedSubject {
    /// The subject of a refusal.
    #[must_use]
    pub fn of(refused: &RefusedRequest) -> Self {
        // A claimed name is none: anybody may write any number of them.
        let user = refused.user.as_ref().map(|user| refused.account.as_ref().unwrap_or(user));
        let user = user.cloned();
        let customer = Prefix::customer(refused.path.five_tuple.client.ip());
        Self { user, customer, reason: refused.reason }
    }
}

impl Refused {
    /// Starts with the first refusal of a subject.
    #[must_use]
    pub const fn new(latest: RefusedRequest, now: Instant) -> Self {
        Self { latest, first: now, last: now, count: 1, other_claims: false }
    }

    /// Counts another refusal of the same subject.
    pub fn note(&mut self, request: &RefusedRequest, now: Instant) {
        self.other_claims |= claim_differs(&self.latest, request);
        self.latest.clone_from(request);
        self.last = now;
        self.count += 1;
    }

    /// Merges refusals of one subject, which several workers have.
    pub(crate) fn merge(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut merged: HashMap<RefusedSubject, Self> = HashMap::new();
        for one in all {
            match merged.entry(RefusedSubject::of(&one.latest)) {
                Entry::Vacant(place) => drop(place.insert(one)),
                Entry::Occupied(mut other) => other.get_mut().add(one),
            }
        }
        merged.into_values().collect()
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.first = self.first.min(other.first);
        self.other_claims |= other.other_claims || claim_differs(&self.latest, &other.latest);
        if other.last > self.last {
            (self.last, self.latest) = (other.last, other.latest);
        }
    }
}

/// Returns true if `earlier` claimed a name that `later` does not have.
fn claim_differs(earlier: &RefusedRequest, later: &RefusedRequest) -> bool {
    earlier.claimed.is_some() && earlier.claimed != later.claimed
}

/// Which refusals to list. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalFilter {
    /// Only of this user: the name as authenticated or claimed, or its account. A name in its form
    /// ([`UserName`](turn_proto::UserName)). Refusals of clients that claimed several names are
    /// listed as well, after the others: only the latest of these names is stored.
    pub user: Option<String>,
    /// Only of clients of the [customer](Prefix::customer) with this address, as refusals of one
    /// customer are counted together.
    pub client: Option<IpAddr>,
}

impl RefusalFilter {
    /// Returns true if refusals are selected.
    #[must_use]
    pub fn takes(&self, refused: &Refused) -> bool {
        let client = Prefix::customer(refused.latest.path.five_tuple.client.ip());
        (refused.other_claims || self.is_of_user(&refused.latest))
            && self.client.is_none_or(|ip| Prefix::customer(ip) == client)
    }

    /// Sorts refusals: those that are certainly of the user first, then by time, the latest first.
    pub fn sort(&self, refused: &mut [Refused]) {
        refused.sort_by_key(|one| Reverse((self.is_of_user(&one.latest), one.last, one.first)));
    }

    /// Returns true if a request has the name of the user, or no user is selected.
    fn is_of_user(&self, request: &RefusedRequest) -> bool {
        let has_name = |user: &str| {
            let mut names = request.user.iter().chain(&request.claimed).chain(&request.account);
            names.any(|name| **name == *user)
        };
        self.user.as_deref().is_none_or(has_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_subject_at_several_workers_are_one() {
        let at = Instant::from_nanos;
        let refused = |user: &str, (first, last), count| {
            let mut latest = RefusedRequest::sample(Refusal::PeerForbidden);
            latest.user = Some(user.into());
            latest.account = user.split(':').next_back().map(Into::into);
            Refused { first: at(first), last: at(last), count, ..Refused::new(latest, at(0)) }
        };
        let mut merged = Refused::merge(
            [
                refused("1700000000:ann", (5, 9), 3),
                refused("bob", (1, 10), 1),
                refused("1700000001:ann", (2, 20), 4),
                refused("ann", (3, 4), 1),
            ]
            .into_iter(),
        );
        RefusalFilter::default().sort(&mut merged);
        assert_eq!(merged, [refused("1700000001:ann", (2, 20), 8), refused("bob", (1, 10), 1)]);
    }

    #[test]
    fn names_that_several_workers_know_are_several() {
        let claimed = |name: Option<&str>| {
            let latest = RefusedRequest::sample(Refusal::WrongPassword);
            let latest = RefusedRequest { claimed: name.map(Into::into), ..latest };
            Refused::new(latest, Instant::from_nanos(1))
        };
        let others = |names: [Option<&str>; 2]| {
            let merged = Refused::merge(names.map(claimed).into_iter());
            assert_eq!(merged.len(), 1);
            merged[0].other_claims
        };
        assert!(others([Some("ann"), Some("bob")]));
        assert!(!others([Some("ann"), Some("ann")]));
        assert!(!others([None, None]));
    }
}
