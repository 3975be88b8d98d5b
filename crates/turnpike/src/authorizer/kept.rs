//! Cache of answers, for further allocations of one user at one address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use fair_share::{Claimant, Share, Slots, USERS, system_hasher};
use turn_proto::{Applicant, Authorization};
use turn_types::{Prefix, Realm, Transport};

/// Maximum number of cached answers: about 4 MiB. If the cache is full, an answer of the account or
/// network with most answers is replaced.
const KEPT_MAX: u32 = 10_000;

/// Properties of a client on which an answer may depend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    realm: Realm,
    user: Arc<str>,
    /// Account. Access tokens of one key have the same user and different accounts.
    account: Arc<str>,
    transport: Transport,
    ip: IpAddr,
}

#[derive(Debug)]
pub(super) struct KeptAnswers {
    answers: HashMap<Key, (Authorization, Instant)>,
    /// Keys of the answers, the oldest first. All answers are cached equally long.
    order: VecDeque<Entry>,
    slots: Slots,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    until: Instant,
    share: Share,
}

impl KeptAnswers {
    pub(super) fn new() -> Self {
        let slots = Slots::new(&USERS, KEPT_MAX, system_hasher());
        Self { answers: HashMap::new(), order: VecDeque::new(), slots }
    }

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
        while self.order.front().is_some_and(|oldest| oldest.until <= now) {
            self.remove(0);
        }
        let claimant = claimant(applicant);
        if self.slots.held() >= self.slots.capacity() {
            let Self { order, slots, .. } = self;
            let rival = slots.rival(&claimant, order.len(), |position| &order[position].share);
            let Some(rival) = rival else { return };
            self.remove(rival);
        }
        let (key, share) = (Key::of(applicant), self.slots.keep(&claimant));
        self.order.push_back(Entry { key: key.clone(), until, share });
        self.answers.insert(key, (answer, until));
    }

    /// Removes the answer at a position in `order`.
    fn remove(&mut self, position: usize) {
        let Some(Entry { key, until, share }) = self.order.remove(position) else { return };
        self.slots.release(share);
        // The key may have a newer answer.
        if self.answers.get(&key).is_some_and(|(_, end)| *end == until) {
            self.answers.remove(&key);
        }
    }
}

/// Returns the network of a client: `/24`, or `/48` of IPv6.
pub(super) fn network(applicant: &Applicant) -> Prefix {
    Prefix::network(applicant.client.ip())
}

/// Returns the client as charged in shares.
pub(super) fn claimant(applicant: &Applicant) -> Claimant<'_> {
    Claimant::at(applicant.client.ip()).with_account(&applicant.realm, &applicant.account)
}

impl Key {
    /// Returns true if the key belongs to a client of the same account.
    pub(super) fn has_account_of(&self, applicant: &Applicant) -> bool {
        self.account == applicant.account && self.realm == applicant.realm
    }

    pub(super) fn of(applicant: &Applicant) -> Self {
        Self {
            realm: applicant.realm.clone(),
            user: Arc::clone(&applicant.user),
            account: Arc::clone(&applicant.account),
            transport: applicant.transport,
            ip: applicant.client.0.ip(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turn_proto::GrantLimits;
    use turn_types::ClientAddr;

    use super::*;

    fn applicant(user: &str, client: &str) -> Applicant {
        let account = user;
        // The name of an access token contains the name of its key.
        let user = account.split_once('#').map_or(account, |(key, _)| key);
        Applicant {
            realm: "r".into(),
            user: user.into(),
            account: account.into(),
            transport: Transport::Udp,
            client: ClientAddr(client.parse().unwrap()),
        }
    }

    #[test]
    fn an_answer_counts_for_its_user_at_its_address_and_its_time() {
        let (start, long) = (Instant::now(), Duration::from_secs(10));
        let mut kept = KeptAnswers::new();
        kept.put(&applicant("alice", "192.0.2.1:1"), Authorization::Denied, start, start + long);
        let get = |user, client, at| kept.get(&applicant(user, client), at);
        assert_eq!(get("alice", "192.0.2.1:2", start), Some(Authorization::Denied));
        assert_eq!(get("alice", "192.0.2.2:1", start), None);
        assert_eq!(get("bob", "192.0.2.1:1", start), None);
        assert_eq!(get("alice", "192.0.2.1:1", start + long), None);
    }

    #[test]
    fn an_access_token_has_no_answer_of_another_with_its_key() {
        let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs(10));
        let (mut kept, yes) = (KeptAnswers::new(), Authorization::Granted(GrantLimits::default()));
        let [honest, denied] = ["key#1", "key#2"].map(|token| applicant(token, "192.0.2.1:1"));
        assert_eq!(honest.user, denied.user);
        kept.put(&honest, yes.clone(), start, until);
        assert_eq!(kept.get(&denied, start), None);
        kept.put(&denied, Authorization::Denied, start, until);
        assert_eq!(kept.get(&honest, start), Some(yes));
        assert_eq!(kept.get(&denied, start), Some(Authorization::Denied));
    }

    #[test]
    fn their_number_is_bounded_and_ends_take_no_memory() {
        let (start, long) = (Instant::now(), Duration::from_secs(10));
        let mut kept = KeptAnswers::new();
        for user in 0..2 * KEPT_MAX {
            let user = applicant(&user.to_string(), "192.0.2.1:1");
            kept.put(&user, Authorization::Denied, start, start + long);
            kept.put(&user, Authorization::Denied, start, start + long);
        }
        assert!(kept.order.len() <= KEPT_MAX as usize && kept.answers.len() <= KEPT_MAX as usize);
        kept.put(
            &applicant("last", "192.0.2.1:1"),
            Authorization::Denied,
            start + long,
            start + 2 * long,
        );
        assert_eq!((kept.order.len(), kept.answers.len()), (1, 1));
    }

    #[test]
    fn a_network_with_many_answers_leaves_those_of_others() {
        let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs(10));
        let mut kept = KeptAnswers::new();
        let alice = applicant("alice", "192.0.2.1:1");
        kept.put(&alice, Authorization::Denied, start, until);
        for user in 0..2 * KEPT_MAX {
            let [_, _, high, low] = user.to_be_bytes();
            let client = format!("198.51.{}.{}:1", high % 64, low);
            let mallory = applicant(&user.to_string(), &client);
            kept.put(&mallory, Authorization::Denied, start, until);
        }
        assert!(kept.get(&alice, start).is_some());
        let bob = applicant("bob", "203.0.113.1:1");
        kept.put(&bob, Authorization::Denied, start, until);
        assert!(kept.get(&bob, start).is_some());
        assert_eq!(kept.order.len(), KEPT_MAX as usize);
        assert_eq!(kept.slots.held(), KEPT_MAX);
    }
}
