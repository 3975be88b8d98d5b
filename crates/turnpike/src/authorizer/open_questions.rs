//! Questions that wait for their answers: bounded for all, and for each account, so that no user
//! takes the places of others while the service is slow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use turn_proto::Applicant;
use turn_types::Realm;

/// Questions at a time: as many connections. With an answer in 10 ms they are 12,800 a second.
const QUESTIONS_MAX: usize = 128;

/// Questions of one account at a time: a user has a few devices, each with a few allocations.
const QUESTIONS_PER_ACCOUNT_MAX: usize = 8;

type Account = (Realm, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct OpenQuestions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    accounts: HashMap<Account, usize>,
}

/// The place of a question. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    of: Arc<OpenQuestions>,
    account: Account,
}

impl OpenQuestions {
    /// Takes a place for a question; `None` if there is none.
    pub(super) fn take(self: &Arc<Self>, applicant: &Applicant) -> Option<Place> {
        let account = (applicant.realm.clone(), Arc::clone(&applicant.account));
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.accounts.get(&account).copied().unwrap_or(0);
        if counts.all >= QUESTIONS_MAX || own >= QUESTIONS_PER_ACCOUNT_MAX {
            return None;
        }
        counts.all += 1;
        counts.accounts.insert(account.clone(), own + 1);
        drop(counts);
        Some(Place { of: Arc::clone(self), account })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        if let Some(own) = counts.accounts.get_mut(&self.account) {
            *own -= 1;
            if *own == 0 {
                counts.accounts.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, Transport};

    use super::*;

    fn applicant(account: &str) -> Applicant {
        Applicant {
            realm: "r".into(),
            user: account.into(),
            account: account.into(),
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], 1).into()),
        }
    }

    #[test]
    fn one_account_leaves_places_to_others_and_gives_its_own_back() {
        let open = Arc::<OpenQuestions>::default();
        let take = |account| open.take(&applicant(account));
        let mut alices: Vec<_> = std::iter::from_fn(|| take("alice")).collect();
        assert_eq!(alices.len(), QUESTIONS_PER_ACCOUNT_MAX);
        assert!(take("bob").is_some());
        alices.pop();
        assert!(take("alice").is_some());
        let names: Vec<String> = (0..2 * QUESTIONS_MAX).map(|number| number.to_string()).collect();
        let others: Vec<_> = names.iter().filter_map(|name| take(name)).collect();
        assert_eq!(others.len() + alices.len(), QUESTIONS_MAX);
        drop((alices, others));
        let counts = open.0.lock().unwrap();
        assert!(counts.all == 0 && counts.accounts.is_empty());
    }
}
