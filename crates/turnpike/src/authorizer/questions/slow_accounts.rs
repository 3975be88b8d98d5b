//! Table of accounts for which the service is slow, although the service answers other accounts
//! quickly.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use fair_share::QuestionNumber;
use turn_proto::Applicant;

use super::quick_accounts::QuickAccounts;
use super::slow_networks::QUICK_FOR;

/// Maximum number of slow accounts: about 300 KiB. If the table is full, the account that was added
/// first is removed. With all questions open for a second each, removal takes place after 16 s.
const SLOW_ACCOUNTS_MAX: usize = 4096;

/// Time for which an account is slow after its latest slow answer.
const SLOW_FOR: Duration = Duration::from_secs(45);

/// Pause after an account's first missed deadline, as a multiple of the deadline. A service that
/// processes a question for 30 s after its connection was closed then has two such questions
/// concurrently.
const FIRST_PAUSE: u32 = 4;

/// Pause after each consecutive missed deadline after the first, as a multiple of the deadline.
/// With a deadline of 3 s the pause equals [`SLOW_FOR`].
const PAUSE_MAX: u32 = 15;

/// Minimum time of a slow answer, as a multiple of the time of quick answers. With exponential
/// times one of ten answers takes longer.
const SLOW_AFTER: u32 = 8;

/// Minimum time of a slow answer: longer than scheduling and network delays within one site.
const SLOW_AFTER_MIN: Duration = Duration::from_millis(20);

/// Additive step of the time of quick answers, for growth from zero.
const QUICK_STEP: Duration = Duration::from_micros(30);

/// Accounts with slow answers. Slow answers may be the majority, because the limit follows the
/// lowest quartile. Further slow responses to an account do not change the limit while later
/// questions get quick responses.
#[derive(Debug)]
pub(super) struct SlowAccounts {
    accounts: HashMap<u64, SlowAccount>,
    /// Keys of the accounts, the first added first.
    order: VecDeque<u64>,
    quick_accounts: QuickAccounts,
    /// Estimated lowest quartile of response times. `None` before the first response.
    quick: Option<Duration>,
    /// Latest question with a quick answer.
    quickest: Option<QuestionNumber>,
    /// Time of the latest quick answer.
    quickest_at: Option<Instant>,
    hasher: RandomState,
}

#[derive(Debug)]
struct SlowAccount {
    /// Time of the answer, or the age of the question without an answer.
    took: Duration,
    until: Instant,
    /// Earliest time of the next question. Set after missed deadlines while the service answered
    /// other questions.
    next: Option<Instant>,
}

/// Response to a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) number: QuestionNumber,
    pub(super) took: Duration,
    /// True if the response may change the limit (see [`Votes`](super::votes::Votes)).
    pub(super) has_vote: bool,
}

impl SlowAccounts {
    pub(super) fn new() -> Self {
        Self {
            accounts: HashMap::new(),
            order: VecDeque::new(),
            quick_accounts: QuickAccounts::default(),
            quick: None,
            quickest: None,
            quickest_at: None,
            hasher: RandomState::new(),
        }
    }

    /// Returns the age from which a question is slow, or `None` before the first response.
    pub(super) fn slow_after(&self) -> Option<Duration> {
        self.quick.map(|quick| (quick * SLOW_AFTER).max(SLOW_AFTER_MIN))
    }

    /// Returns true for an account with a recent slow response. The current limit applies: if the
    /// service has become slow for all accounts, earlier responses are not slow any more. Without
    /// recent quick answers no account is slow.
    pub(super) fn has(&self, applicant: &Applicant, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < QUICK_FOR;
        if !self.quickest_at.is_some_and(is_recent) {
            return false;
        }
        let account = self.accounts.get(&self.key(applicant));
        account.is_some_and(|account| now < account.until && self.is_slow(account.took))
    }

    /// Returns the number of consecutive quick responses to an account, or 0 if the latest response
    /// was not quick.
    pub(super) fn quick_answers(&self, applicant: &Applicant) -> u32 {
        self.quick_accounts.answers(self.key(applicant))
    }

    /// Records a response. Returns true if the response is slow.
    pub(super) fn answered(
        &mut self,
        applicant: &Applicant,
        response: Response,
        now: Instant,
    ) -> bool {
        let Response { number, took, has_vote } = response;
        let is_slow = self.is_slow(took);
        if has_vote && !(is_slow && self.is_overtaken(number) && self.has(applicant, now)) {
            self.adapt(took);
        }
        if is_slow {
            self.note(applicant, took, now);
            let key = self.key(applicant);
            if let Some(account) = self.accounts.get_mut(&key) {
                account.next = None;
            }
        } else {
            self.quick_accounts.add(self.key(applicant));
            self.quickest = self.quickest.max(Some(number));
            self.quickest_at = Some(now);
        }
        is_slow
    }

    /// Returns true if a question that was sent later has a quick answer.
    pub(super) fn is_overtaken(&self, number: QuestionNumber) -> bool {
        self.quickest.is_some_and(|quickest| number < quickest)
    }

    /// Records a question without an answer so far, if its age is slow.
    pub(super) fn unanswered(&mut self, applicant: &Applicant, age: Duration, now: Instant) {
        if self.quick.is_none() || self.is_slow(age) {
            self.note(applicant, age, now);
        }
    }

    /// Records that a deadline passed while the service answered other questions. The missed
    /// question may occupy a worker of the service for a minute.
    pub(super) fn missed(&mut self, applicant: &Applicant, now: Instant) {
        let key = self.key(applicant);
        if let Some(account) = self.accounts.get_mut(&key) {
            let pause = if account.next.is_some() { PAUSE_MAX } else { FIRST_PAUSE };
            let next = now + account.took * pause;
            (account.next, account.until) = (Some(next), next + SLOW_FOR);
        }
    }

    /// Returns true if the service may be queried about a slow account.
    pub(super) fn may_have_one(&self, applicant: &Applicant, now: Instant) -> bool {
        let account = self.accounts.get(&self.key(applicant));
        account.and_then(|account| account.next).is_none_or(|next| now >= next)
    }

    fn is_slow(&self, took: Duration) -> bool {
        self.slow_after().is_some_and(|after| took >= after)
    }

    /// Moves the estimate up by a thirteenth, or down by a fifth, which is three times as far. With
    /// this ratio the estimate converges to the lowest quartile.
    fn adapt(&mut self, took: Duration) {
        let quick = self.quick.unwrap_or(took);
        self.quick = Some(if took > quick {
            (quick + quick / 13 + QUICK_STEP).min(took)
        } else {
            (quick * 4 / 5).max(took)
        });
    }

    fn note(&mut self, applicant: &Applicant, took: Duration, now: Instant) {
        // For each added account, two old entries are checked for removal.
        for _ in 0..2 {
            let Some(first) = self.order.pop_front() else { break };
            if self.accounts.get(&first).is_some_and(|account| now < account.until) {
                self.order.push_back(first);
            } else {
                self.accounts.remove(&first);
            }
        }
        let (key, until) = (self.key(applicant), now + SLOW_FOR);
        self.quick_accounts.remove(key);
        if let Some(account) = self.accounts.get_mut(&key) {
            (account.took, account.until) = (took, until);
            return;
        }
        self.accounts.insert(key, SlowAccount { took, until, next: None });
        self.order.push_back(key);
        if self.order.len() > SLOW_ACCOUNTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.accounts.remove(&first);
        }
    }

    /// Returns a hash under a secret seed, so no account can choose the key of another account.
    fn key(&self, applicant: &Applicant) -> u64 {
        self.hasher.hash_one((&*applicant.realm, &*applicant.account))
    }
}

#[cfg(test)]
mod tests {
    use fair_share::Window;

    use super::super::tests::request;
    use super::*;

    /// Records a response to the latest question.
    fn answer(accounts: &mut SlowAccounts, window: &mut Window, name: &str, took: Duration) {
        let number = window.send();
        let response = Response { number, took, has_vote: true };
        accounts.answered(&request(name, 1).applicant, response, Instant::now());
    }

    #[test]
    fn most_answers_may_be_of_slow_accounts() {
        let (mut accounts, mut window) = (SlowAccounts::new(), Window::new(8));
        let [fast, slow] = [5, 2700].map(Duration::from_millis);
        for round in 0..500_u32 {
            // An overtaken question has a lower number.
            let number = window.send();
            answer(&mut accounts, &mut window, "fast", fast);
            for _ in 0..10 {
                let account = request(&format!("slow {}", round % 50), 1).applicant;
                let response = Response { number, took: slow, has_vote: true };
                accounts.answered(&account, response, Instant::now());
            }
        }
        let now = Instant::now();
        assert!(accounts.slow_after().is_some_and(|after| after < Duration::from_millis(200)));
        assert!(accounts.has(&request("slow 1", 2).applicant, now));
        assert!(!accounts.has(&request("fast", 1).applicant, now));
        assert!(!accounts.has(&request("slow 1", 1).applicant, now + SLOW_FOR + SLOW_FOR));
        assert_eq!(accounts.order.len(), 50);
    }

    #[test]
    fn a_service_that_becomes_slow_has_no_slow_accounts() {
        let (mut accounts, mut window) = (SlowAccounts::new(), Window::new(8));
        for took in [5, 1000].map(Duration::from_millis) {
            for number in 0..200 {
                answer(&mut accounts, &mut window, &format!("account {}", number % 20), took);
            }
        }
        let now = Instant::now();
        assert!((0..20).all(|number| {
            !accounts.has(&request(&format!("account {number}"), 1).applicant, now)
        }));
    }

    #[test]
    fn their_number_is_bounded() {
        let (mut accounts, now) = (SlowAccounts::new(), Instant::now());
        for number in 0..3 * SLOW_ACCOUNTS_MAX {
            let account = request(&number.to_string(), 1).applicant;
            accounts.unanswered(&account, Duration::from_secs(3), now);
        }
        assert_eq!(accounts.order.len(), SLOW_ACCOUNTS_MAX);
        assert_eq!(accounts.accounts.len(), SLOW_ACCOUNTS_MAX);
        let last = request("last", 1).applicant;
        for round in 0..3 * SLOW_ACCOUNTS_MAX {
            let later = now + SLOW_FOR * 2 + Duration::from_nanos(round as u64);
            accounts.unanswered(&last, Duration::from_secs(3), later);
        }
        assert_eq!(accounts.accounts.len(), 1);
    }
}
