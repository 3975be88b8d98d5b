//! Clients and users whose events are logged in detail for a while, whatever the level of the log.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use state_format::fields;
use turn_types::{Instant, Prefix};

use crate::limits::TRACES_MAX;

/// Selection of events, until it ends. Without client and user it selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Only of clients in this network.
    pub client: Option<Prefix>,
    /// Only of this user: the name as authenticated or claimed, or its account. A name in its form
    /// ([`UserName`](turn_proto::UserName)).
    pub user: Option<String>,
    /// End.
    pub until: Instant,
}

fields!(Trace { 1 => client, 2 => user, 3 => until });

impl Trace {
    fn selects(&self, client: IpAddr, names: &[&str]) -> bool {
        let of_user = |wanted: &str| names.contains(&wanted);
        self.client.is_none_or(|prefix| prefix.contains(client))
            && self.user.as_deref().is_none_or(of_user)
    }
}

/// The traces of a server, [`TRACES_MAX`] at most, shared by its workers. While there is none, a
/// query is one load.
#[derive(Debug, Default)]
pub struct Traces {
    any: AtomicBool,
    list: Mutex<Vec<Trace>>,
}

/// There are as many traces as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTraces;

impl Traces {
    /// Adds a trace; one of the same client and user is replaced.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, now: Instant, trace: Trace) -> Result<(), TooManyTraces> {
        let mut list = self.live(now);
        list.retain(|one| (&one.client, &one.user) != (&trace.client, &trace.user));
        if list.len() >= TRACES_MAX {
            return Err(TooManyTraces);
        }
        list.push(trace);
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends all traces, and returns their number.
    pub fn clear(&self, now: Instant) -> usize {
        let mut list = self.live(now);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list).len()
    }

    /// The traces that have not ended.
    #[must_use]
    pub fn list(&self, now: Instant) -> Vec<Trace> {
        self.live(now).clone()
    }

    /// Returns true if an event of a client is to be logged. `names`: the user, or the name that
    /// the client claims, and the account.
    #[must_use]
    pub fn selects(&self, now: Instant, client: IpAddr, names: &[&str]) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let list = self.live(now);
        if list.is_empty() {
            self.any.store(false, Ordering::Relaxed);
        }
        list.iter().any(|trace| trace.selects(client, names))
    }

    fn live(&self, now: Instant) -> MutexGuard<'_, Vec<Trace>> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|trace| now < trace.until);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn trace(client: Option<&str>, user: Option<&str>, until: u64) -> Trace {
        let client = client.map(|prefix| prefix.parse().unwrap());
        Trace { client, user: user.map(str::to_owned), until: at(until) }
    }

    #[test]
    fn a_trace_selects_its_clients_and_ends() {
        let traces = Traces::default();
        let selects =
            |second, ip: &str, names: &[_]| traces.selects(at(second), ip.parse().unwrap(), names);
        assert!(!selects(0, "192.0.2.1", &[]));
        traces.add(at(0), trace(Some("192.0.2.0/24"), None, 10)).unwrap();
        traces.add(at(0), trace(None, Some("alice"), 20)).unwrap();
        assert!(selects(9, "192.0.2.1", &[]) && !selects(10, "192.0.2.1", &[]));
        assert!(selects(10, "198.51.100.1", &["1700000000|alice", "alice"]));
        assert!(!selects(10, "198.51.100.1", &["bob"]) && !selects(10, "198.51.100.1", &[]));
        assert!(!selects(20, "198.51.100.1", &["alice"]));
        assert!(!traces.any.load(Ordering::Relaxed), "as before the first");
    }

    #[test]
    fn they_are_bounded_replaced_and_cleared() {
        let traces = Traces::default();
        for number in 0..TRACES_MAX {
            traces.add(at(0), trace(None, Some(&number.to_string()), 10)).unwrap();
        }
        assert_eq!(traces.add(at(0), trace(None, None, 10)), Err(TooManyTraces));
        traces.add(at(0), trace(None, Some("3"), 99)).unwrap();
        assert_eq!(traces.list(at(50)), [trace(None, Some("3"), 99)]);
        assert_eq!((traces.clear(at(50)), traces.list(at(50)).len()), (1, 0));
    }
}
