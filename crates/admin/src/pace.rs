//! Pace of answers to strangers: callers without a token, with a request that their token does not
//! permit, or of monitoring. One thread serves all of HTTP, and clients that do not wait for an
//! answer before the next request would fill it.
//!
//! The answer waits, and not the request: only the answer shows whether the caller had a right to
//! it. A connection has one answer at a time.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fair_share::{CLIENTS, Claimant, Meter, system_hasher};
use tokio::time::{Instant, sleep};

use crate::limits::ANSWERS_PER_SECOND;

/// Time that one answer takes of its address.
const ANSWER_TAKES: Duration = Duration::from_nanos(1_000_000_000 / ANSWERS_PER_SECOND as u64);

/// Time up to which an address does not wait: 50 answers, some loads of the page.
const AHEAD: Duration = ANSWER_TAKES.saturating_mul(50);

/// Longest wait. All connections of a listener together need half of it: only those of which the
/// client has gone without its answer lead to it.
const BEHIND: Duration = Duration::from_secs(1);

/// Answers to strangers at one listener, by address and network.
#[derive(Debug)]
pub(crate) struct Pace {
    used: Mutex<Meter>,
    /// Epoch of the meter.
    started: Instant,
}

/// Mark of an answer to a caller with a right to it. Such callers have a pace of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rightful;

impl Pace {
    pub(crate) fn new() -> Self {
        let used = Mutex::new(Meter::new(&CLIENTS, system_hasher()));
        Self { used, started: Instant::now() }
    }

    /// Waits until an address may have a further answer.
    pub(crate) async fn next(&self, to: IpAddr) {
        let wait = self.wait(to);
        // A sleep takes a millisecond at least.
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// Counts an answer. Returns the time until the address may have it.
    fn wait(&self, to: IpAddr) -> Duration {
        let now = turn_types::Instant::ZERO + self.started.elapsed();
        let claimant = Claimant::at(to);
        // Nothing in it can be half done.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.spend(now, &claimant, ANSWER_TAKES, AHEAD + BEHIND);
        used.backlog(now, &claimant).saturating_sub(AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALLORY: &str = "192.0.2.1";

    async fn answers(pace: &Pace, to: &str, count: u32) {
        let to = to.parse().unwrap();
        for _ in 0..count {
            pace.next(to).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_rate_of_answers() {
        let (pace, began) = (Pace::new(), Instant::now());
        answers(&pace, MALLORY, 50).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "a page has some files");
        answers(&pace, MALLORY, 2 * ANSWERS_PER_SECOND).await;
        let took = began.elapsed();
        assert!((1950..2050).contains(&took.as_millis()), "{took:?}");
        for honest in ["192.0.2.2", "2001:db8::1"] {
            answers(&pace, honest, 50).await;
        }
        assert_eq!(began.elapsed(), took, "others do not wait");
    }

    /// A `/48` has 65,536 of `/64`.
    #[tokio::test(start_paused = true)]
    async fn a_site_has_a_rate_of_answers() {
        let (pace, began) = (Pace::new(), Instant::now());
        for number in 0..16 * ANSWERS_PER_SECOND {
            answers(&pace, &format!("2001:db8:1:{number:x}::1"), 1).await;
        }
        let took = began.elapsed();
        assert!((800..1000).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_without_an_answer_delay_no_other_for_long() {
        let pace = Pace::new();
        for _ in 0..100_000 {
            pace.wait(MALLORY.parse().unwrap());
        }
        let began = Instant::now();
        answers(&pace, MALLORY, 1).await;
        assert!(began.elapsed() <= BEHIND, "{:?}", began.elapsed());
    }
}
