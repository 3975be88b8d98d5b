//! Recent refusals as an operator is told of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use turn_proto::{GrantLimits, Refusal, RefusedRequest};
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
        let user = refused.user.as_deref().map(|name| Arc::from(account(name)));
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
            let named = refused.user.iter().chain(&refused.claimed);
            named.into_iter().any(|name| **name == *user || account(name) == user)
        };
        let client = refused.path.five_tuple.client.ip();
        self.user.as_deref().is_none_or(of_user) && self.client.is_none_or(|ip| ip == client)
    }
}

/// The account in a user name: the part behind the time of a time-limited name.
#[must_use]
pub fn account(name: &str) -> &str {
    let name = without_limits(name);
    match name.split_once(':') {
        Some((time, account))
            if !account.is_empty()
                && !time.is_empty()
                && time.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            account
        }
        Some(_) | None => name,
    }
}

/// The name without the limits of a credential, if it has any.
fn without_limits(name: &str) -> &str {
    match name.split_once('?') {
        Some((bare, limits)) if limits.parse::<GrantLimits>().is_ok() => bare,
        Some(_) | None => name,
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

    #[test]
    fn a_time_limited_name_has_its_user_behind_the_time() {
        for (name, user) in [
            ("1700000000:alice", "alice"),
            ("1700000000:", "1700000000:"),
            ("alice", "alice"),
            ("a:b", "a:b"),
            ("1700000000:alice?allocations=2", "alice"),
            ("1700000000:alice?who", "alice?who"),
            (":b", ":b"),
        ] {
            assert_eq!(account(name), user, "{name}");
        }
    }
}
