//! Processor time for DTLS and TLS handshakes, which clients can start without credentials.
//!
//! One handshake costs as much as hundreds of relayed packets, which wait for the handshake. So
//! handshakes have a bounded time in each iteration of the loop. Each client, and each network
//! around the client, has a small share of the worker's time. The last part of an iteration's time
//! is reserved for clients that have used little of their share. So a flood from some networks does
//! not prevent service to others. If many customers share an address by configuration, no shares
//! apply.
//!
//! Handshake work without time in an iteration continues in the next iteration. TLS handshakes wait
//! in their connections, and DTLS handshakes wait in a [queue](crate::dtls).
//!
//! The measure is the processor time of the thread, so no client is charged for other work of the
//! host.

use std::net::IpAddr;
use std::time::Duration;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, Meter};
use turn_types::Instant;

use crate::limits::{
    HANDSHAKE_BURST, HANDSHAKE_SHARE, HANDSHAKE_STEP_MAX, HANDSHAKE_STEP_MIN, HANDSHAKE_TIME_FEW,
    HANDSHAKE_TIME_PER_TURN,
};

/// Handshake time of one worker.
#[derive(Debug)]
pub(crate) struct HandshakeBudget {
    used: Meter,
    /// Time spent in this iteration.
    spent: Duration,
    /// True in iterations that serve TLS handshakes before DTLS handshakes.
    is_tls_first: bool,
}

/// Kind of handshake work. Continuing has priority, because work was already invested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start or continue a handshake, for a client whose address is shared by many customers.
    Unshared,
    /// Start a handshake.
    Begin,
    /// Continue a handshake.
    Continue,
}

/// Budget that is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTime {
    /// The time of this iteration is exhausted.
    Turn,
    /// The share of the client or network is exhausted.
    Share,
}

/// Handshake work in progress, with the start of the time measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    client: IpAddr,
    begun: Duration,
}

impl HandshakeBudget {
    /// Creates full budgets. The hasher assigns sources to buckets.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { used: Meter::new(&CLIENTS, hasher), spent: Duration::ZERO, is_tls_first: false }
    }

    /// Starts another iteration of the loop. Returns true in every second iteration, which serves
    /// TLS handshakes first. So neither transport uses all of the time.
    pub(crate) const fn begin_turn(&mut self) -> bool {
        self.spent = Duration::ZERO;
        self.is_tls_first = !self.is_tls_first;
        self.is_tls_first
    }

    /// Starts work for a client. [`done`](Self::done) completes the work. If the work is admitted,
    /// `cpu` reads the thread's processor time with a system call.
    ///
    /// # Errors
    /// The exhausted budget is returned.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        client: IpAddr,
        step: Step,
        cpu: impl FnOnce() -> Duration,
    ) -> Result<Work, NoTime> {
        self.admit(now, client, step)?;
        Ok(Work { client, begun: cpu() })
    }

    /// Completes work, and charges the client for the time since the start.
    pub(crate) fn done(&mut self, now: Instant, work: Work, cpu: Duration) {
        self.charge(now, work.client, cpu.saturating_sub(work.begun));
    }

    /// Checks that work for a client may start now. Nothing is charged.
    ///
    /// # Errors
    /// The exhausted budget is returned.
    pub(crate) fn admit(&self, now: Instant, client: IpAddr, step: Step) -> Result<(), NoTime> {
        let is_late = self.spent >= HANDSHAKE_TIME_PER_TURN / 2;
        let used_at_most = match step {
            _ if self.spent >= HANDSHAKE_TIME_PER_TURN => return Err(NoTime::Turn),
            Step::Unshared => return Ok(()),
            _ if is_late => HANDSHAKE_TIME_FEW,
            Step::Begin => HANDSHAKE_BURST / 4 * 3,
            Step::Continue => HANDSHAKE_BURST,
        };
        let used = self.used.backlog(now, &Claimant::at(client));
        if used <= used_at_most * HANDSHAKE_SHARE {
            Ok(())
        } else {
            Err(if is_late { NoTime::Turn } else { NoTime::Share })
        }
    }

    fn charge(&mut self, now: Instant, client: IpAddr, took: Duration) {
        let took = took.clamp(HANDSHAKE_STEP_MIN, HANDSHAKE_STEP_MAX);
        self.spent += took;
        self.used.charge(now, &Claimant::at(client), took * HANDSHAKE_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(250);

    fn budget() -> HandshakeBudget {
        HandshakeBudget::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(100_000 + millis)
    }

    /// Returns an address in a separate network.
    fn customer(number: u8) -> IpAddr {
        IpAddr::from([192, number, 2, 1])
    }

    /// Performs steps of equal cost until no time is left. Returns the number of steps and the
    /// exhausted budget.
    fn steps(
        budget: &mut HandshakeBudget,
        now: Instant,
        customer: IpAddr,
        step: Step,
    ) -> (u32, NoTime) {
        let mut steps = 0;
        loop {
            match budget.admit(now, customer, step) {
                Ok(()) => budget.charge(now, customer, STEP),
                Err(why) => return (steps, why),
            }
            steps += 1;
        }
    }

    /// Performs steps in new iterations until the share is exhausted.
    fn steps_over_turns(budget: &mut HandshakeBudget, now: Instant, step: Step) -> u32 {
        let mut all = 0;
        loop {
            budget.begin_turn();
            match steps(budget, now, customer(1), step) {
                (0, why) => {
                    assert_eq!(why, NoTime::Share);
                    return all;
                }
                (steps, _) => all += steps,
            }
        }
    }

    #[test]
    fn a_turn_has_so_much_time_and_the_last_half_is_for_who_has_used_little() {
        let mut budget = budget();
        steps_over_turns(&mut budget, at(0), Step::Begin);
        // A flooder whose share now allows more work than fits into an iteration.
        let later = at(10_000);
        budget.begin_turn();
        let half = HANDSHAKE_TIME_PER_TURN.as_micros() as u32 / 2 / 250;
        assert_eq!(
            steps(&mut budget, later, customer(1), Step::Begin),
            (half, NoTime::Turn),
            "the first half"
        );
        assert_eq!(
            steps(&mut budget, later, customer(2), Step::Begin),
            (half, NoTime::Turn),
            "a newcomer has the rest"
        );
        assert_eq!(budget.admit(later, customer(3), Step::Continue), Err(NoTime::Turn));
        budget.begin_turn();
        assert_eq!(budget.admit(later, customer(3), Step::Begin), Ok(()));
    }

    #[test]
    fn a_customer_has_a_share_and_what_has_begun_may_be_finished() {
        let mut budget = budget();
        let begun = steps_over_turns(&mut budget, at(0), Step::Begin);
        let burst = (HANDSHAKE_BURST.as_micros() / STEP.as_micros()) as u32;
        assert!((burst * 3 / 4..=burst * 3 / 4 + 1).contains(&begun), "{begun} of {burst}");
        let finished = steps_over_turns(&mut budget, at(0), Step::Continue);
        assert!((burst / 4 - 1..=burst / 4 + 1).contains(&finished), "{finished} of {burst}");
        // Other customers are not charged.
        budget.begin_turn();
        assert_eq!(budget.admit(at(0), customer(2), Step::Begin), Ok(()));
        // Later the customer can use the share of the time that has passed.
        let later = at(10_000);
        let refilled = steps_over_turns(&mut budget, later, Step::Continue);
        let share = (Duration::from_secs(10) / HANDSHAKE_SHARE).as_micros() / STEP.as_micros();
        assert!(refilled.abs_diff(share as u32) <= 1, "{refilled} instead of {share}");
    }

    #[test]
    fn a_step_that_seems_to_cost_nothing_is_charged_and_a_long_one_forgiven() {
        let mut budget = budget();
        let mut steps = 0;
        while budget.admit(at(0), customer(1), Step::Begin).is_ok() {
            budget.charge(at(0), customer(1), Duration::ZERO);
            steps += 1;
        }
        assert_eq!(steps, HANDSHAKE_TIME_PER_TURN.as_micros() / HANDSHAKE_STEP_MIN.as_micros());
        budget.begin_turn();
        budget.charge(at(0), customer(2), Duration::from_secs(100));
        budget.begin_turn();
        let later = Instant::ZERO + (HANDSHAKE_STEP_MAX * HANDSHAKE_SHARE);
        let later = at(later.saturating_since(Instant::ZERO).as_millis() as u64);
        assert_eq!(budget.admit(later, customer(2), Step::Begin), Ok(()));
    }

    #[test]
    fn behind_an_address_of_many_customers_only_the_turn_is_bounded() {
        let mut budget = budget();
        for _ in 0..10_000 {
            budget.begin_turn();
            let (steps, why) = steps(&mut budget, at(0), customer(1), Step::Unshared);
            assert_eq!(
                (u128::from(steps), why),
                (HANDSHAKE_TIME_PER_TURN.as_micros() / 250, NoTime::Turn)
            );
        }
    }

    #[test]
    fn one_customer_of_ipv6_has_one_share() {
        let [one, two] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut budget = budget();
        let work = budget.begin(at(0), one, Step::Begin, || STEP).unwrap();
        budget.done(at(0), work, STEP * 2);
        assert_eq!(budget.spent, STEP);
        let used = |client| budget.used.backlog(at(0), &Claimant::at(client));
        assert_eq!([used(one), used(two)], [STEP * HANDSHAKE_SHARE; 2]);
    }

    /// Simulates the holder of a site who changes the address for each handshake.
    #[test]
    fn a_site_of_ipv6_has_a_share_and_leaves_the_rest() {
        let mut budget = budget();
        let site = |number: u16| IpAddr::from([0x2001, 0xdb8, 1, number, 0, 0, 0, 1]);
        let mut begun = Duration::ZERO;
        let seconds = 300;
        // A millisecond per iteration, half of the worker's time.
        for turn in 0..seconds * 500 {
            budget.begin_turn();
            let now = at(turn * 2);
            while budget.admit(now, site(turn as u16), Step::Begin).is_ok() {
                budget.charge(now, site(turn as u16), STEP);
                begun += STEP;
            }
            if turn % 50 == 49 {
                let other = customer((turn / 50) as u8);
                assert_eq!(budget.admit(now, other, Step::Begin), Ok(()), "{turn}");
            }
        }
        // The burst of the site, and an eighth of the time.
        let most = HANDSHAKE_BURST * 16 + Duration::from_secs(seconds) / HANDSHAKE_SHARE * 16;
        assert!(begun < most && begun > most / 2, "{begun:?} of {most:?}");
    }
}
