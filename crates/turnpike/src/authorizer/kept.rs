//! Answers that are kept for a while, for further allocations of one user at one address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use turn_proto::{Applicant, Authorization};
use turn_types::{Realm, Transport};

/// Most answers that are kept: some 4 MiB. The oldest makes room.
const KEPT_MAX: usize = 10_000;

/// A client as far as answers about it differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    realm: Realm,
    user: Arc<str>,
    transport: Transport,
    ip: IpAddr,
}

#[derive(Debug, Default)]
pub(super) struct KeptAnswers {
    answers: HashMap<Key, (Authorization, Instant)>,
    /// Their keys, the oldest first: all are kept equally long.
    order: VecDeque<(Key, Instant)>,
}

impl KeptAnswers {
    pub(super) fn get(&self, applicant: &Applicant, now: Instant) -> Option<Authorization> {
        let (answer, until) = self.answers.get(&Key::of(applicant))?;
        (now < *until).then(|| answer.clone())
    }

    pub(super) fn put(
        &mut self,
        applicant: &Applicant,
        answer: Authorization,
        now: Instant,
        until: Instant,
    ) {
        while self.order.front().is_some_and(|(_, end)| *end <= now) || self.order.len() >= KEPT_MAX
        {
            let Some((key, end)) = self.order.pop_front() else { break };
            // It may have been answered anew since.
            if self.answers.get(&key).is_some_and(|(_, until)| *until == end) {
                self.answers.remove(&key);
            }
        }
        let key = Key::of(applicant);
        self.order.push_back((key.clone(), until));
        self.answers.insert(key, (answer, until));
    }
}

impl Key {
    fn of(applicant: &Applicant) -> Self {
        Self {
            realm: applicant.realm.clone(),
            user: Arc::clone(&applicant.user),
            transport: applicant.transport,
            ip: applicant.client.0.ip(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turn_types::ClientAddr;

    use super::*;

    fn applicant(user: &str, client: &str) -> Applicant {
        Applicant {
            realm: "r".into(),
            user: user.into(),
            account: user.into(),
            transport: Transport::Udp,
            client: ClientAddr(client.parse().unwrap()),
        }
    }

    #[test]
    fn an_answer_counts_for_its_user_at_its_address_and_its_time() {
        let (start, long) = (Instant::now(), Duration::from_secs(10));
        let mut kept = KeptAnswers::default();
        kept.put(&applicant("alice", "192.0.2.1:1"), Authorization::Denied, start, start + long);
        let get = |user, client, at| kept.get(&applicant(user, client), at);
        assert_eq!(get("alice", "192.0.2.1:2", start), Some(Authorization::Denied));
        assert_eq!(get("alice", "192.0.2.2:1", start), None);
        assert_eq!(get("bob", "192.0.2.1:1", start), None);
        assert_eq!(get("alice", "192.0.2.1:1", start + long), None);
    }

    #[test]
    fn their_number_is_bounded_and_ends_take_no_memory() {
        let (start, long) = (Instant::now(), Duration::from_secs(10));
        let mut kept = KeptAnswers::default();
        for user in 0..2 * KEPT_MAX {
            let user = applicant(&user.to_string(), "192.0.2.1:1");
            kept.put(&user, Authorization::Denied, start, start + long);
            kept.put(&user, Authorization::Denied, start, start + long);
        }
        assert!(kept.order.len() <= KEPT_MAX && kept.answers.len() <= KEPT_MAX);
        kept.put(
            &applicant("last", "192.0.2.1:1"),
            Authorization::Denied,
            start + long,
            start + 2 * long,
        );
        assert_eq!((kept.order.len(), kept.answers.len()), (1, 1));
    }
}
