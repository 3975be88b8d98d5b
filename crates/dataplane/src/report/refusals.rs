//! Recent refusals of a worker, for the log and for operators.

use std::collections::{HashMap, VecDeque};

use control::{RefusalFilter, Refused, RefusedSubject};
use turn_proto::{Budget, RefusedRequest};
use turn_types::Instant;

use crate::limits::{REFUSAL_LINE_EVERY, REFUSALS_KEPT};

#[derive(Debug)]
struct Entry {
    refused: Refused,
    /// Time of the last log line about these refusals.
    line_at: Instant,
    /// Number of refusals since the last log line.
    since: u64,
}

/// Returns the text of the log line about an exhausted budget.
pub(super) const fn spent_budget(budget: Budget) -> &'static str {
    match budget {
        Budget::AllNetworks => {
            "thousands of networks send requests without credentials, this among them: a part of \
             the requests over UDP gets no response"
        }
        Budget::Bindings
        | Budget::Challenges
        | Budget::ProvedAddress
        | Budget::FailedVerifications
        | Budget::UserLookups
        | Budget::Requests => "clients of this network get no answers for now: its budget is spent",
    }
}

/// Recent refusals: at most [`REFUSALS_KEPT`] kinds. In a full table, the oldest kind is removed.
#[derive(Debug, Default)]
pub(crate) struct RecentRefusals {
    entries: HashMap<RefusedSubject, Entry>,
    /// Keys, oldest first.
    order: VecDeque<RefusedSubject>,
}

impl RecentRefusals {
    /// Adds a refusal. Returns the number of refusals of this kind since the last line, if a line
    /// is due. A line is due at the first refusal, and later not before [`REFUSAL_LINE_EVERY`] has
    /// passed.
    pub(crate) fn note(&mut self, now: Instant, request: &RefusedRequest) -> Option<u64> {
        let key = RefusedSubject::of(request);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.refused.note(request, now);
            entry.since += 1;
            if now < entry.line_at + REFUSAL_LINE_EVERY {
                return None;
            }
            entry.line_at = now;
            return Some(std::mem::take(&mut entry.since));
        }
        if self.order.len() >= REFUSALS_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        let refused = Refused::new(request.clone(), now);
        self.order.push_back(key.clone());
        self.entries.insert(key, Entry { refused, line_at: now, since: 0 });
        Some(1)
    }

    /// Returns at most `limit` refusals that `filter` selects, sorted by the filter.
    pub(crate) fn list(&self, filter: &RefusalFilter, limit: usize) -> Vec<Refused> {
        let entries = self.order.iter().filter_map(|key| self.entries.get(key));
        let taken = entries.map(|entry| &entry.refused).filter(|one| filter.takes(one));
        let mut list: Vec<_> = taken.cloned().collect();
        filter.sort(&mut list);
        list.truncate(limit);
        list
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use turn_proto::Refusal;
    use turn_types::ClientAddr;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn refused(client: &str, user: Option<&str>, reason: Refusal) -> RefusedRequest {
        let mut request = RefusedRequest::sample(reason);
        request.path.five_tuple.client = ClientAddr(SocketAddr::new(client.parse().unwrap(), 5000));
        let account = user.and_then(|user| user.split(':').next_back());
        RefusedRequest { user: user.map(Into::into), account: account.map(Into::into), ..request }
    }

    #[test]
    fn a_line_is_due_once_a_minute_for_a_user_and_reason() {
        let mut recent = RecentRefusals::default();
        let alice = refused("192.0.2.1", Some("1700000000:alice"), Refusal::UserQuota);
        let later = refused("192.0.2.1", Some("1700000500:alice"), Refusal::UserQuota);
        let due = [0, 1, 59, 60, 61].map(|second| recent.note(at(second), &alice));
        assert_eq!(due, [Some(1), None, None, Some(3), None]);
        assert_eq!(recent.note(at(62), &later), None, "the user has another time, and is the same");
        let other = refused("192.0.2.1", Some("1700000000:alice"), Refusal::PeerForbidden);
        assert_eq!(recent.note(at(62), &other), Some(1), "another reason");
        let bob = refused("192.0.2.1", Some("bob"), Refusal::UserQuota);
        assert_eq!(recent.note(at(62), &bob), Some(1), "another user");
    }

    #[test]
    fn clients_that_claim_many_names_are_one() {
        let mut recent = RecentRefusals::default();
        for claim in 0..1000 {
            let claimed = Some(format!("user-{claim}").into());
            let request = refused("192.0.2.1", None, Refusal::UnknownUser);
            recent.note(at(1), &RefusedRequest { claimed, ..request });
        }
        let all = recent.list(&RefusalFilter::default(), usize::MAX);
        assert_eq!((all.len(), all[0].count), (1, 1000));
        assert_eq!(all[0].latest.claimed.as_deref(), Some("user-999"));
    }

    /// A search for one of several claimed names finds the common row of these names.
    #[test]
    fn a_name_among_others_that_were_claimed_is_found() {
        let mut recent = RecentRefusals::default();
        let claim = |client, name: &str| {
            let request = refused(client, None, Refusal::WrongPassword);
            RefusedRequest { claimed: Some(name.into()), ..request }
        };
        recent.note(at(1), &claim("192.0.2.1", "alice"));
        recent.note(at(2), &claim("192.0.2.1", "bob"));
        recent.note(at(3), &claim("192.0.2.2", "carol"));
        recent.note(at(4), &claim("192.0.2.2", "carol"));
        let of = |name: &str| {
            let filter = RefusalFilter { user: Some(name.into()), client: None };
            let list = recent.list(&filter, 10);
            let found = list.iter().map(|one| (one.latest.claimed.clone(), one.other_claims));
            found.map(|(name, others)| (name.unwrap().to_string(), others)).collect::<Vec<_>>()
        };
        let both = ("bob".to_owned(), true);
        // The row of alice contains a later name. Certain rows precede the others.
        assert_eq!(of("carol"), [("carol".to_owned(), false), both.clone()]);
        assert_eq!(of("alice"), vec![both]);
    }

    /// All addresses of one customer have one row, with the latest address.
    #[test]
    fn each_address_of_a_customer_finds_its_row() {
        let mut recent = RecentRefusals::default();
        for client in ["2001:db8::1", "2001:db8::2"] {
            recent.note(at(1), &refused(client, None, Refusal::UnknownUser));
        }
        let count = |client: &str| {
            let filter = RefusalFilter { user: None, client: Some(client.parse().unwrap()) };
            recent.list(&filter, 10).first().map(|one| one.count)
        };
        assert_eq!(count("2001:db8::1"), Some(2));
        assert_eq!(count("2001:db8:0:1::1"), None);
    }

    #[test]
    fn the_oldest_make_room_and_the_latest_come_first() {
        let mut recent = RecentRefusals::default();
        for (second, user) in (0..).zip(0..REFUSALS_KEPT + 3) {
            let user = user.to_string();
            recent.note(at(second), &refused("192.0.2.1", Some(&user), Refusal::UserQuota));
        }
        let all = recent.list(&RefusalFilter::default(), usize::MAX);
        assert_eq!((all.len(), recent.entries.len()), (REFUSALS_KEPT, REFUSALS_KEPT));
        assert_eq!(all[0].latest.user, Some((REFUSALS_KEPT + 2).to_string().into()));
        assert_eq!(all.last().unwrap().latest.user.as_deref(), Some("3"));
        assert_eq!(recent.list(&RefusalFilter::default(), 2).len(), 2);
        let filter = RefusalFilter { user: Some("7".into()), client: None };
        assert_eq!(recent.list(&filter, 10).len(), 1);
        let filter = RefusalFilter { user: None, client: Some("192.0.2.2".parse().unwrap()) };
        assert_eq!(recent.list(&filter, 10), []);
    }
}
