//! Service that rejects questions beyond a rate (429), of all clients or of each account.

use std::collections::BTreeMap;

use super::*;

/// Tokens per second, and the maximum number of tokens saved in a quiet period.
const LIMIT: f64 = 100.0;
const BURST: f64 = 10.0;

/// Waits of the questions of honest clients, and the number of refused questions.
#[derive(Debug, Default)]
struct Honest {
    waits: Vec<Duration>,
    refused: u32,
}

impl Honest {
    fn percentile(&mut self, percent: usize) -> Duration {
        self.waits.sort_unstable();
        self.waits[self.waits.len() * percent / 100]
    }
}

/// Service with token buckets: one for all accounts, or one for each account.
#[derive(Default)]
struct Service {
    limits_all: bool,
    tokens: BTreeMap<String, (f64, u32)>,
}

impl Service {
    fn accepts(&mut self, account: &str, millisecond: u32) -> bool {
        let of = if self.limits_all { "" } else { account };
        let limit = if self.limits_all || account.starts_with("honest") { LIMIT } else { 1.0 };
        let (tokens, at) = self.tokens.entry(of.into()).or_insert((BURST, 0));
        *tokens = (*tokens + limit * f64::from(millisecond - *at) / 1000.0).min(BURST);
        *at = millisecond;
        let accepts = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(accepts));
        accepts
    }
}

/// Simulates attackers and fifty honest clients for 30 s. From the fifth second on, all `attackers`
/// together send three hundred questions per second. The honest clients together send
/// `honest_per_second`. Each answer takes a millisecond.
fn beside(limits_all: bool, attackers: u32, honest_per_second: u32) -> Honest {
    let (questions, mut now) = (Questions::new(), Instant::now());
    let mut service = Service { limits_all, ..Service::default() };
    let (mut honest, mut open) = (Honest::default(), Vec::new());
    let is_honest =
        |request: &AuthorizationRequest| request.applicant.account.starts_with("honest");
    let mut watched = now;
    for millisecond in 0..30_000 {
        let due = |per_second: u32| {
            (millisecond + 1) * per_second / 1000 - millisecond * per_second / 1000
        };
        let mut is_due = now >= watched;
        for number in 0..due(honest_per_second) {
            let client = (millisecond / 7 + number) % 50;
            let mut request = request(&format!("honest {client}"), 1);
            request.applicant.client = ClientAddr(([100, client as u8, 7, 1], 1).into());
            questions.push(request, now);
            is_due = true;
        }
        for number in 0..if millisecond < 5000 { 0 } else { due(300) } {
            let attacker = (millisecond + number) % attackers;
            let mut request = request(&format!("mallory {attacker}"), 1);
            let [_, _, high, low] = attacker.to_be_bytes();
            request.applicant.client = ClientAddr(([60 + high, low, 2, 1], 1).into());
            questions.push(request, now);
            is_due = true;
        }
        for question in std::mem::take(&mut open) {
            let question: OpenQuestion = question;
            is_due = true;
            if service.accepts(&question.request.applicant.account, millisecond) {
                let wait = now - question.asked;
                let request = questions.close(question, now);
                if is_honest(&request) && millisecond >= 5000 {
                    honest.waits.push(wait);
                }
            } else {
                assert!(questions.put_back(question, NoAnswer::Busy, now).1.is_none());
            }
        }
        while let Some(next) = is_due.then(|| questions.take(now)).flatten() {
            match next {
                Ok(question) => open.push(question),
                Err(DroppedQuestion::Late(request, _) | DroppedQuestion::Crowded(request)) => {
                    honest.refused += u32::from(is_honest(&request));
                }
            }
        }
        if is_due {
            let wait = questions.wait(now);
            let most = Duration::from_millis(100);
            watched = now + if wait.is_zero() { most } else { wait.min(most) };
        }
        now += Duration::from_millis(1);
    }
    honest
}

/// An honest question is next, and is answered after a gap or two.
#[test]
fn an_account_beyond_the_limit_of_the_service_delays_others_for_a_gap() {
    for (attackers, per_second) in [(1, 4), (1, 40), (3, 4)] {
        let mut honest = beside(true, attackers, per_second);
        let [median, most] = [50, 95].map(|percent| honest.percentile(percent));
        let is_soon = median <= Duration::from_millis(10) && most <= Duration::from_millis(40);
        assert!(is_soon && honest.refused == 0, "{attackers} {per_second}: {median:?} {most:?}");
    }
}

/// The service limits each account, and the honest accounts do not exceed the limit.
#[test]
fn refusals_of_some_accounts_delay_no_other() {
    for (attackers, per_second) in [(1, 4), (1, 100), (100, 4), (100, 100), (1000, 100)] {
        let mut honest = beside(false, attackers, per_second);
        let [median, most] = [50, 95].map(|percent| honest.percentile(percent));
        let is_soon = median <= Duration::from_millis(2) && most <= Duration::from_millis(40);
        assert!(is_soon && honest.refused == 0, "{attackers} {per_second}: {median:?} {most:?}");
    }
}
