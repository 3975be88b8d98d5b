//! Limit of each account's influence on the window and on the threshold of slow accounts.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use turn_proto::Applicant;

/// Divisor of a round's length that defines the maximum number of responses about one account with
/// influence on the window. The service may be quick for this account only.
const ACCOUNT_VOTES: usize = 8;

/// Age of a round from which the limit does not apply, because all clients may have one account.
const ROUND_AGE_MAX: Duration = Duration::from_secs(10);

/// Responses of the current round, by account. The table has at most one entry per response.
#[derive(Debug)]
pub(super) struct Votes {
    round: u64,
    started: Instant,
    by_account: HashMap<u64, usize>,
    hasher: RandomState,
}

impl Votes {
    pub(super) fn new() -> Self {
        Self {
            round: 0,
            started: Instant::now(),
            by_account: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a response. Returns true if the account has not exceeded its limit in the round. A
    /// round consists of `length` responses.
    pub(super) fn take(
        &mut self,
        applicant: &Applicant,
        now: Instant,
        (round, length): (u64, usize),
    ) -> bool {
        if self.round != round {
            (self.round, self.started) = (round, now);
            self.by_account.clear();
        }
        if now.saturating_duration_since(self.started) >= ROUND_AGE_MAX {
            return true;
        }
        let account = self.hasher.hash_one((&*applicant.realm, &*applicant.account));
        let votes = self.by_account.entry(account).or_default();
        *votes += 1;
        *votes <= (length / ACCOUNT_VOTES).max(1)
    }
}
