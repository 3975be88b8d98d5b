//! Pace of questions about clients for which the service refuses some (429): an account, or a
//! network, that asks beyond the limit of the service. Without it each question would be repeated
//! by itself, and most of what the service accepts would be of the client that asks most.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use turn_proto::Applicant;

use crate::authorizer::kept::network;

/// Time for which questions are paced after the latest refusal.
const PACED_FOR: Duration = Duration::from_secs(3);

/// Shortest interval between two reductions of a rate: questions that were sent together are
/// refused together.
const LOWERED_EVERY: Duration = Duration::from_millis(100);

/// Lowest rate, in thousandths of a question per second.
const RATE_MIN: u32 = 4000;

/// Lowest first rate, in the same unit. The first rate is that of all decisions, if it is higher.
const FIRST_RATE_MIN: u32 = 50_000;

/// Increase of the rate with each decision, in the same unit.
const STEP: u32 = 200;

/// Delay for which questions that were sent too late are made up for: timers are late by this.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Number of seconds whose decisions are counted: the service may have been silent for some.
const SECONDS: usize = 10;

/// Maximum number of paced accounts and networks. Questions of further ones are not paced.
const PACED_MAX: usize = 2048;

/// Rates of questions about clients with refusals: they fall with refusals, and rise with
/// decisions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    paced: HashMap<u64, Rate>,
    decisions: Decisions,
    hasher: RandomState,
}

/// Question rate of an account or a network.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Thousandths of a question per second.
    rate: u32,
    /// Time of the next question.
    next: Instant,
    /// Time of the latest refusal.
    refused: Instant,
    /// Time of the latest reduction.
    lowered: Instant,
}

/// Number of decisions in each of the last seconds.
#[derive(Debug, Default)]
struct Decisions {
    begin: Option<Instant>,
    second: u64,
    counts: [u32; SECONDS],
}

impl Decisions {
    fn count(&mut self, now: Instant) {
        self.advance(now);
        let slot = &mut self.counts[self.second as usize % SECONDS];
        *slot = slot.saturating_add(1);
    }

    /// Empties the slots of later seconds.
    fn advance(&mut self, now: Instant) {
        let begin = *self.begin.get_or_insert(now);
        let second = now.saturating_duration_since(begin).as_secs();
        let begun = (self.second + 1..=second).rev().take(SECONDS);
        begun.for_each(|second| self.counts[second as usize % SECONDS] = 0);
        self.second = second.max(self.second);
    }

    /// The most in one second, in thousandths of a decision.
    fn most(&mut self, now: Instant) -> u32 {
        self.advance(now);
        self.counts.iter().max().copied().unwrap_or(0).saturating_mul(1000)
    }
}

impl Rate {
    fn is_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.refused) < PACED_FOR
    }

    fn gap(&self) -> Duration {
        Duration::from_secs(1000) / self.rate.max(RATE_MIN)
    }

    /// Time until the next question.
    fn wait(&self, now: Instant) -> Duration {
        if self.is_on(now) { self.next.saturating_duration_since(now) } else { Duration::ZERO }
    }

    fn lower(&mut self, now: Instant) {
        self.refused = now;
        if now.saturating_duration_since(self.lowered) >= LOWERED_EVERY {
            (self.rate, self.lowered) = ((self.rate / 20 * 17).max(RATE_MIN), now);
        }
    }
}

impl Pace {
    /// Notes a refusal.
    pub(super) fn note_refusal(&mut self, applicant: &Applicant, now: Instant) {
        let first = self.decisions.most(now).max(FIRST_RATE_MIN);
        if self.paced.len() + 2 > PACED_MAX {
            self.paced.retain(|_, rate| rate.is_on(now));
        }
        for key in self.keys(applicant) {
            let known = self.paced.get_mut(&key).filter(|rate| rate.is_on(now));
            if let Some(rate) = known {
                rate.lower(now);
            } else if self.paced.len() < PACED_MAX || self.paced.contains_key(&key) {
                let mut rate = Rate { rate: first, next: now, refused: now, lowered: now };
                rate.next += rate.gap();
                self.paced.insert(key, rate);
            }
        }
    }

    /// Notes a decision.
    pub(super) fn note_decision(&mut self, applicant: &Applicant, now: Instant) {
        self.decisions.count(now);
        self.of(applicant, now, |rate| rate.rate = rate.rate.saturating_add(STEP));
    }

    /// Notes an opened question: the next one follows after a gap.
    pub(super) fn note_opened(&mut self, applicant: &Applicant, now: Instant) {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        self.of(applicant, now, |rate| rate.next = rate.next.max(earliest) + rate.gap());
    }

    /// Notes that an opened question was not sent.
    pub(super) fn note_unsent(&mut self, applicant: &Applicant, now: Instant) {
        self.of(applicant, now, |rate| {
            rate.next = rate.next.checked_sub(rate.gap()).unwrap_or(rate.next);
        });
    }

    /// Time until the next question about a client.
    pub(super) fn wait_of(&self, applicant: &Applicant, now: Instant) -> Duration {
        let rates = self.keys(applicant).into_iter().filter_map(|key| self.paced.get(&key));
        rates.map(|rate| rate.wait(now)).max().unwrap_or_default()
    }

    /// Time until the next question about one of the clients; zero without one.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let waits = self.paced.values().map(|rate| rate.wait(now));
        waits.filter(|wait| !wait.is_zero()).min().unwrap_or_default()
    }

    fn of(&mut self, applicant: &Applicant, now: Instant, change: impl Fn(&mut Rate)) {
        if self.paced.is_empty() {
            return;
        }
        for key in self.keys(applicant) {
            self.paced.get_mut(&key).filter(|rate| rate.is_on(now)).map(&change);
        }
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

    fn applicant(name: &str, host: u8) -> Applicant {
        request(name, host).applicant
    }

    #[test]
    fn a_rate_follows_the_decisions_and_refusals_of_its_clients() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let [mallory, alice] = [applicant("mallory", 1), applicant("alice", 201)];
        for _ in 0..100 {
            pace.note_decision(&mallory, now);
        }
        assert_eq!(pace.wait_of(&mallory, now), Duration::ZERO, "no refusal so far");
        pace.note_refusal(&mallory, now);
        let gap = Duration::from_millis(10);
        assert_eq!((pace.wait_of(&mallory, now), pace.wait(now)), (gap, gap));
        assert_eq!(pace.wait_of(&alice, now), Duration::ZERO);
        assert_eq!(pace.wait_of(&applicant("mallory", 201), now), gap, "one account");
        assert_eq!(pace.wait_of(&applicant("bob", 1), now), gap, "one network");
        let rate = |pace: &Pace| pace.paced.values().map(|rate| rate.rate).max();
        now += LOWERED_EVERY;
        for _ in 0..2 {
            pace.note_refusal(&mallory, now);
            assert_eq!(rate(&pace), Some(85_000), "lowered once");
        }
        pace.note_decision(&mallory, now);
        assert_eq!(rate(&pace), Some(85_000 + STEP));
        now += PACED_FOR;
        assert_eq!(pace.wait_of(&mallory, now), Duration::ZERO);
    }

    /// The service was silent for some seconds, and refuses the next questions.
    #[test]
    fn the_first_rate_is_that_before_a_silence() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..200 {
            pace.note_decision(&applicant("alice", 1), now);
        }
        now += Duration::from_secs(SECONDS as u64 - 1);
        pace.note_refusal(&applicant("alice", 1), now);
        assert_eq!(pace.wait(now), Duration::from_millis(5));
        now += Duration::from_secs(SECONDS as u64);
        pace.note_refusal(&applicant("alice", 1), now);
        assert_eq!(pace.wait(now), Duration::from_millis(20));
    }

    #[test]
    fn their_number_is_bounded() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for number in 0..2 * PACED_MAX {
            pace.note_refusal(&applicant(&number.to_string(), (number % 200) as u8), now);
        }
        assert_eq!(pace.paced.len(), PACED_MAX);
        now += PACED_FOR;
        pace.note_refusal(&applicant("mallory", 1), now);
        assert_eq!(pace.paced.len(), 2);
    }
}
