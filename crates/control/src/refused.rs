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
    /// Merges refusals of one subject, which several workers have; returns them with the latest
    /// first.
    pub(crate) fn merge(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut merged: HashMap<RefusedSubject, Self> = HashMap::new();
        for one in all {
            match merged.entry(RefusedSubject::of(&one.latest)) {
                Entry::Vacant(place) => drop(place.insert(one)),
                Entry::Occupied(mut other) => other.get_mut().add(one),
            }
        }
        let mut list: Vec<_> = merged.into_values().collect();
        list.sort_by_key(|refused| Reverse((refused.last, refused.first)));
        list
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.first = self.first.min(other.first);
        if other.last > self.last {
            (self.last, self.latest) = (other.last, other.latest);
        }
    }
}

/// Which refusals to list. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalFilter {
    /// Only of this user: the name as authenticated or claimed, or its account. A name in its form
    /// ([`UserName`](turn_proto::UserName)).
    pub user: Option<String>,
    /// Only of clients at this address.
    pub client: Option<IpAddr>,
}

impl RefusalFilter {
    /// Returns whether a refusal is selected.
    #[must_use]
    pub fn takes(&self, refused: &RefusedRequest) -> bool {
        let of_user = |user: &str| {
            let mut names = refused.user.iter().chain(&refused.claimed).chain(&refused.account);
            names.any(|name| **name == *user)
        };
        let client = refused.path.five_tuple.client.ip();
        self.user.as_deref().is_none_or(of_user) && self.client.is_none_or(|ip| ip == client)
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
            Refused { latest, first: at(first), last: at(last), count }
        };
        let merged = Refused::merge(
            [
                refused("1700000000:ann", (5, 9), 3),
                refused("bob", (1, 10), 1),
                refused("1700000001:ann", (2, 20), 4),
                refused("ann", (3, 4), 1),
            ]
            .into_iter(),
        );
        assert_eq!(merged, [refused("1700000001:ann", (2, 20), 8), refused("bob", (1, 10), 1)]);
    }
}
