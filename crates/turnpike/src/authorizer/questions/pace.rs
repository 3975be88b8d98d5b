//! Pace of questions about an account or network whose questions the service rejects (429), because
//! of a rate limit. Without a pace each question would be repeated separately. Most questions that
//! the service accepts would then belong to the client with the most questions.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use turn_proto::Applicant;

use crate::authorizer::kept::network;

/// Time for which questions are paced after the latest rejection.
const PACED_FOR: Duration = Duration::from_secs(3);

/// Minimum interval between two reductions of a rate. Questions that were sent together are
/// rejected together.
const LOWERED_EVERY: Duration = Duration::from_millis(100);

/// Minimum rate, in thousandths of a question per second.
const RATE_MIN: u32 = 4000;

/// Minimum initial rate, in thousandths of a question per second. The initial rate is the rate of
/// all decisions, if that rate is higher.
const FIRST_RATE_MIN: u32 = 50_000;

/// Increase of the rate with each decision, in thousandths of a question per second.
const STEP: u32 = 200;

/// Maximum delay of questions that is compensated by shorter gaps. Timers are late by about this
/// time.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Number of seconds for which decisions are counted. The service may have been silent in some of
/// them.
const SECONDS: usize = 10;

/// Maximum number of paced accounts and networks. Questions of further accounts and networks are
/// not paced.
const PACED_MAX: usize = 2048;

/// Rates of questions about clients with rejections. Rates decrease with rejections, and increase
/// with decisions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    paced: HashMap<u64, Rate>,
    decisions: Decisions,
    hasher: RandomState,
}

/// Question rate of an account or a network.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Rate in thousandths of a question per second.
    rate: u32,
    /// Earliest time of the next question.
    next: Instant,
    /// Time of the latest rejection.
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

    /// Clears the slots of the seconds that have started since the last call.
    fn advance(&mut self, now: Instant) {
        let begin = *self.begin.get_or_insert(now);
        let second = now.saturating_duration_since(begin).as_secs();
        let begun = (self.second + 1..=second).rev().take(SECONDS);
        begun.for_each(|second| self.counts[second as usize % SECONDS] = 0);
        self.second = second.max(self.second);
    }

    /// Returns the maximum number of decisions in one second, in thousandths of a decision.
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

    /// Returns the time until the next question.
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
    /// Records a rejection.
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

    /// Records a decision.
    pub(super) fn note_decision(&mut self, applicant: &Applicant, now: Instant) {
        self.decisions.count(now);
        self.of(applicant, now, |rate| rate.rate = rate.rate.saturating_add(STEP));
    }

    /// Records an opened question. The next question follows after a gap.
    pub(super) fn note_opened(&mut self, applicant: &Applicant, now: Instant) {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        self.of(applicant, now, |rate| rate.next = rate.next.max(earliest) + rate.gap());
    }

    /// Records that an opened question was not sent.
    pub(super) fn note_unsent(&mut self, applicant: &Applicant, now: Instant) {
        self.of(applicant, now, |rate| {
            rate.next = rate.next.checked_sub(rate.gap()).unwrap_or(rate.next);
        });
    }

    /// Returns the time until the next question about a client.
    pub(super) fn wait_of(&self, applicant: &Applicant, now: Instant) -> Duration {
        let rates = self.keys(applicant).into_iter().filter_map(|key| self.paced.get(&key));
        rates.map(|rate| rate.wait(now)).max().unwrap_or_default()
    }

    /// Returns the time until the next question about any paced client, or zero if none waits.
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

    /// Returns the keys of the account and the network of a client: hashes under a secret seed.
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

    /// The service was silent for some seconds, and rejects the next questions.
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
