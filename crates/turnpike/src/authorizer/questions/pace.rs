//! Pace of questions to a service that limits their rate (429). Without it each question would be
//! repeated by itself, and the limit would choose by chance: most of what it accepts would be of
//! the client that asks most. In a common pace the order of the queue decides.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use turn_proto::Applicant;

use crate::authorizer::kept::network;

/// Time for which questions are paced after the latest refusal.
const PACED_FOR: Duration = Duration::from_secs(3);

/// Shortest interval between two reductions of the rate: questions that were sent together are
/// refused together.
const LOWERED_EVERY: Duration = Duration::from_millis(100);

/// Lowest rate, in thousandths of a question per second.
const RATE_MIN: u32 = 20_000;

/// Increase of the rate with each decision, in the same unit: 5 % per second at the limit.
const STEP: u32 = 50;

/// The same with a decision about a client without recent refusals: these may become more.
const STEP_OF_OTHERS: u32 = 500;

/// Delay for which questions that were sent too late are made up for: timers are late by this.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Number of questions by which clients without recent refusals may be ahead of the pace. Refusals
/// for the clients of one attacker alone delay no other client.
const AHEAD: u32 = 8;

/// Time for which an account and its network are limited after a refusal.
const LIMITED_FOR: Duration = Duration::from_mins(1);

/// Maximum number of accounts and networks with recent refusals. Beyond it all are limited.
const LIMITED_MAX: usize = 2048;

/// Rate of questions while the service refuses some: it falls with refusals, and rises with
/// decisions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Thousandths of a question per second.
    rate: u32,
    /// Time of the next question.
    next: Option<Instant>,
    /// Time of the latest refusal.
    refused: Option<Instant>,
    /// Time of the latest reduction of the rate.
    lowered: Option<Instant>,
    decisions: Decisions,
    /// Accounts and networks with recent refusals, each with the end of that time.
    limited: HashMap<u64, Instant>,
    hasher: RandomState,
}

/// Number of decisions in the present second, and in the second before.
#[derive(Debug, Default)]
struct Decisions {
    since: Option<Instant>,
    number: u32,
    before: u32,
}

impl Decisions {
    fn count(&mut self, now: Instant) {
        self.advance(now);
        self.number = self.number.saturating_add(1);
    }

    fn advance(&mut self, now: Instant) {
        let second = Duration::from_secs(1);
        match self.since.map(|since| now.saturating_duration_since(since)) {
            Some(passed) if passed < second => {}
            Some(passed) => {
                self.before = if passed < second * 2 { self.number } else { 0 };
                (self.number, self.since) = (0, Some(now));
            }
            None => self.since = Some(now),
        }
    }

    /// Their rate, in thousandths of a decision per second.
    fn rate(&mut self, now: Instant) -> u32 {
        self.advance(now);
        self.number.max(self.before).saturating_mul(1000)
    }
}

impl Pace {
    /// Notes a refusal for the rate. Where the service refuses questions about a few clients only,
    /// their further refusals leave a rate at which the others can be asked about.
    pub(super) fn note_refusal(&mut self, applicant: &Applicant, now: Instant) {
        let decided = self.decisions.rate(now);
        if !self.is_on(now) {
            self.rate = decided.max(RATE_MIN);
            (self.next, self.lowered) = (Some(now + self.gap()), Some(now));
        } else if self.lowered.is_none_or(|at| now.saturating_duration_since(at) >= LOWERED_EVERY) {
            let least = if self.is_limited(applicant, now) { decided / 4 * 5 } else { 0 };
            let lower = (self.rate / 20 * 17).max(least).max(RATE_MIN);
            if lower < self.rate {
                (self.rate, self.lowered) = (lower, Some(now));
            }
        }
        self.refused = Some(now);
        if self.limited.len() + 2 > LIMITED_MAX {
            self.limited.retain(|_, until| now < *until);
        }
        for key in self.keys(applicant) {
            if self.limited.len() < LIMITED_MAX {
                self.limited.insert(key, now + LIMITED_FOR);
            }
        }
    }

    pub(super) fn note_decision(&mut self, applicant: &Applicant, now: Instant) {
        self.decisions.count(now);
        if self.is_on(now) {
            let step = if self.is_limited(applicant, now) { STEP } else { STEP_OF_OTHERS };
            self.rate = self.rate.saturating_add(step);
        }
    }

    /// Notes an opened question: the next one follows after a gap.
    pub(super) fn note_opened(&mut self, now: Instant) {
        if self.is_on(now) {
            let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
            let from = self.next.map_or(earliest, |next| next.max(earliest));
            self.next = Some(from + self.gap());
        }
    }

    /// Notes that an opened question was not sent.
    pub(super) fn note_unsent(&mut self) {
        self.next = self.next.and_then(|next| next.checked_sub(self.gap()));
    }

    /// Returns true while no question of a client may be opened.
    pub(super) fn delays(&self, applicant: &Applicant, now: Instant) -> bool {
        let wait = self.wait(now);
        wait > Duration::ZERO && (wait > self.gap() * AHEAD || self.is_limited(applicant, now))
    }

    /// Time until the next question.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let next = self.next.filter(|_| self.is_on(now));
        next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    fn is_on(&self, now: Instant) -> bool {
        self.refused.is_some_and(|at| now.saturating_duration_since(at) < PACED_FOR)
    }

    fn gap(&self) -> Duration {
        Duration::from_secs(1000) / self.rate.max(RATE_MIN)
    }

    fn is_limited(&self, applicant: &Applicant, now: Instant) -> bool {
        let is = |key: &u64| self.limited.get(key).is_some_and(|until| now < *until);
        self.limited.len() >= LIMITED_MAX || self.keys(applicant).iter().any(is)
    }

    /// Keys of the account and the network of a client: hashes under a secret seed.
    fn keys(&self, applicant: &Applicant) -> [u64; 2] {
        let account = self.hasher.hash_one((&*applicant.realm, &*applicant.account));
        [account, self.hasher.hash_one(network(applicant))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    #[test]
    fn the_rate_follows_decisions_and_refusals() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let [mallory, alice] =
            [("mallory", 1), ("alice", 201)].map(|(name, host)| request(name, host).applicant);
        for _ in 0..100 {
            pace.note_decision(&mallory, now);
        }
        assert!(!pace.delays(&mallory, now), "no refusal so far");
        pace.note_refusal(&mallory, now);
        assert_eq!((pace.rate, pace.wait(now)), (100_000, Duration::from_millis(10)));
        assert!(pace.delays(&mallory, now) && !pace.delays(&alice, now));
        (0..AHEAD).for_each(|_| pace.note_opened(now));
        assert!(pace.delays(&alice, now), "one question for each gap");
        now += LOWERED_EVERY;
        pace.note_refusal(&mallory, now);
        assert_eq!(pace.rate, 100_000, "the service has decided as often");
        for _ in 0..2 {
            pace.note_refusal(&alice, now);
            assert_eq!(pace.rate, 85_000);
        }
        pace.note_decision(&request("bob", 202).applicant, now);
        assert_eq!(pace.rate, 85_000 + STEP_OF_OTHERS);
        now += PACED_FOR;
        assert!(!pace.delays(&mallory, now));
    }

    #[test]
    fn their_number_is_bounded() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for number in 0..LIMITED_MAX {
            pace.note_refusal(&request(&number.to_string(), (number % 200) as u8).applicant, now);
        }
        let alice = request("alice", 201).applicant;
        assert!(pace.limited.len() == LIMITED_MAX && pace.delays(&alice, now));
        now += LIMITED_FOR;
        pace.note_refusal(&request("mallory", 1).applicant, now);
        assert!(pace.limited.len() == 2 && !pace.delays(&alice, now));
    }
}
