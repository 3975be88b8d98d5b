//! Clients about which the service has answered. If other questions are not answered, questions
//! about some of these clients are repeated. The answers show if the service is silent for all
//! clients.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turn_proto::Applicant;
use turn_types::Prefix;

use super::kept::network;

/// Maximum number of known clients, each of a different account. Networks (`/24`, `/48` of IPv6)
/// share the table. With this number the chosen clients rarely all belong to one user, for whose
/// accounts the service could hang.
const KNOWN_MAX: usize = 32;

/// Maximum number of questions about known clients, one after another, until an answer arrives.
const TOGETHER_MAX: usize = 4;

/// Minimum interval between questions about known clients.
const EVERY: Duration = Duration::from_secs(1);

/// Average number of answers about further accounts of the largest networks after which one
/// replaces a client of a full table. Thus neither the first clients nor the latest clients fill
/// the table.
const REPLACED_BY: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct KnownClients(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    clients: Vec<Applicant>,
    /// True while questions about known clients are open and unanswered.
    is_asked: bool,
    /// Time of the last questions.
    asked: Option<Instant>,
    /// Source of random numbers: hashes of a counter under a secret seed.
    hasher: RandomState,
    numbers: u64,
}

/// Returns the interval between questions about known clients. `promptly` is the time within which
/// a healthy service answers.
pub(super) fn interval(promptly: Duration) -> Duration {
    promptly.min(EVERY)
}

impl State {
    fn random(&mut self, below: u64) -> u64 {
        self.numbers += 1;
        self.hasher.hash_one(self.numbers) % below
    }

    fn count(&self, of: Prefix) -> usize {
        self.clients.iter().filter(|client| network(client) == of).count()
    }

    /// Returns the number of clients of the network `own`, and of the network with most clients.
    fn counts(&self, own: Prefix) -> (usize, usize) {
        let most = self.clients.iter().map(|client| self.count(network(client))).max();
        (self.count(own), most.unwrap_or(0))
    }

    /// Returns the positions of the clients whose network has `most` clients.
    fn places_of_the_largest(&self, most: usize) -> Vec<usize> {
        let clients = self.clients.iter().enumerate();
        let largest = clients.filter(|(_, client)| self.count(network(client)) == most);
        largest.map(|(place, _)| place).collect()
    }
}

impl KnownClients {
    /// Adds a client about which the service has answered promptly.
    pub(super) fn note(&self, applicant: &Applicant) {
        let mut state = self.lock();
        if state.clients.iter().any(|known| is_same_account(known, applicant)) {
            return;
        }
        if state.clients.len() < KNOWN_MAX {
            state.clients.push(applicant.clone());
            return;
        }
        let (own, most) = state.counts(network(applicant));
        // A network with fewer clients replaces a client of the largest network.
        if most > own + 1 || state.random(REPLACED_BY) == 0 {
            let places = state.places_of_the_largest(most);
            let index = state.random(places.len() as u64) as usize;
            if let Some(place) = places.get(index) {
                state.clients[*place] = applicant.clone();
            }
        }
    }

    /// Returns clients to query about, and the time to wait before the questions. Returns `None` if
    /// no client is known, or questions are open.
    pub(super) fn take(&self, now: Instant, every: Duration) -> Option<(Vec<Applicant>, Duration)> {
        let mut state = self.lock();
        if state.is_asked || state.clients.is_empty() {
            return None;
        }
        let number = state.clients.len();
        let chosen = TOGETHER_MAX.min(number);
        for index in 0..number {
            let other = index + state.random((number - index) as u64) as usize;
            state.clients.swap(index, other);
        }
        // Chooses one client of each network before second clients of the same network.
        let mut networks = BTreeMap::new();
        state.clients.sort_by_cached_key(|client| {
            let before = networks.entry(network(client)).or_insert(0);
            *before += 1;
            *before
        });
        let since = state.asked.map(|asked| now.saturating_duration_since(asked));
        let pause = since.map_or(Duration::ZERO, |since| interval(every).saturating_sub(since));
        state.is_asked = true;
        state.asked = Some(now + pause);
        Some((state.clients[..chosen].to_vec(), pause))
    }

    /// Permits further questions, because an open question was answered or none is open.
    pub(super) fn end(&self) {
        self.lock().is_asked = false;
    }

    /// Removes a client about which the service has not answered in time, although it has answered
    /// other questions.
    pub(super) fn forget(&self, applicant: &Applicant) {
        self.lock().clients.retain(|known| !is_same_account(known, applicant));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same_account(one: &Applicant, other: &Applicant) -> bool {
    one.account == other.account && one.realm == other.realm
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, Transport};

    use super::*;

    fn client(user: &str) -> Applicant {
        Applicant {
            realm: "r".into(),
            user: user.into(),
            account: user.into(),
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], 1).into()),
        }
    }

    #[test]
    fn clients_are_asked_about_once_a_second_and_until_there_is_no_answer() {
        let (known, now) = (KnownClients::default(), Instant::now());
        assert!(known.take(now, EVERY).is_none());
        known.note(&client("alice"));
        known.note(&client("alice"));
        assert_eq!(known.take(now, EVERY), Some((vec![client("alice")], Duration::ZERO)));
        assert!(known.take(now, EVERY).is_none(), "one is open");
        known.end();
        assert_eq!(known.take(now, EVERY), Some((vec![client("alice")], EVERY)));
        known.end();
        known.forget(&client("alice"));
        assert!(known.take(now + EVERY * 3, EVERY).is_none());
        known.note(&client("bob"));
        assert_eq!(known.take(now + EVERY * 3, EVERY).unwrap().0, [client("bob")]);
    }

    /// An attacker has any number of accounts, and the service hangs for all of them together.
    #[test]
    fn no_network_has_more_places_than_others_need() {
        let known = KnownClients::default();
        let at = |account: String, network: u8| Applicant {
            client: ClientAddr(([192, 0, network, 1], 1).into()),
            ..client(&account)
        };
        for number in 0..2000 {
            known.note(&at(format!("mallory {number}"), 1));
            if number % 200 == 0 {
                known.note(&at(format!("honest {number}"), 2 + (number / 200 % 4) as u8));
            }
        }
        let mut now = Instant::now();
        for _ in 0..50 {
            now += EVERY;
            let (chosen, _) = known.take(now, EVERY).unwrap();
            assert!(chosen.iter().any(|client| client.account.starts_with("honest")), "{chosen:?}");
            known.end();
        }
    }

    /// The table is filled neither by the first accounts since the start nor by a later flood of
    /// accounts.
    #[test]
    fn no_user_with_some_accounts_has_all_places() {
        let known = KnownClients::default();
        for round in 0..100 {
            for number in 0..10 {
                known.note(&client(&format!("mallory {number}")));
            }
            known.note(&client(&format!("honest {}", round % 40)));
        }
        let honest = |clients: &[Applicant]| {
            clients.iter().any(|client| client.account.starts_with("honest"))
        };
        let mut now = Instant::now();
        let mut others = 0;
        for _ in 0..100 {
            now += EVERY;
            let (chosen, _) = known.take(now, EVERY).unwrap();
            assert_eq!(chosen.len(), TOGETHER_MAX);
            others += u32::from(honest(&chosen));
            known.end();
        }
        assert!(others > 90, "{others} of 100");
    }
}
