//! Processor time for the handshakes of DTLS and TLS, which anybody may begin without credentials.
//!
//! One handshake costs as much as hundreds of relayed packets, which wait for it. So in each turn of the loop
//! handshakes have a bounded time, and each [customer](Prefix::customer) has a small share of the worker. The
//! last part of a turn's time is for customers that have used little of their share: a flood from a few
//! sources, however large, does not keep others from being served. Where the configuration says that an address
//! is many customers', there are no shares.
//!
//! Work that finds no time in a turn goes on in the next: with TLS it waits in its connection, with DTLS in a
//! [queue](crate::handshake_queue).
//!
//! Time is that of the thread, so that nobody pays for what the host does meanwhile.

use std::net::IpAddr;
use std::time::Duration;

use ahash::RandomState;
use linux_net::thread_cpu_time;
use turn_proto::SourceBudget;
use turn_types::{Instant, Prefix, Transport};

use crate::limits::{
    HANDSHAKE_BURST, HANDSHAKE_SHARE, HANDSHAKE_STEP_MAX, HANDSHAKE_STEP_MIN, HANDSHAKE_TIME_FEW,
    HANDSHAKE_TIME_PER_TURN,
};
use crate::observe::Trouble;
use crate::worker::Worker;

/// Budgets of one worker.
#[derive(Debug)]
pub(crate) struct Handshakes {
    customers: SourceBudget,
    /// Time spent in this turn of the loop.
    spent: Duration,
}

/// The kinds of work. To go on is worth more than to begin: there is something to lose already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Either, for a client whose address is not one customer's.
    Unshared,
    /// A handshake begins.
    Begin,
    /// One that has begun goes on.
    Continue,
}

/// There is no time now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTime {
    /// Of this turn of the loop: there is in the next.
    Turn,
    /// Of the customer's share.
    Customer,
}

/// Handshake work that is being done, of which the time is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    customer: Prefix,
    begun: Duration,
}

impl Handshakes {
    /// Full budgets. Which sources share a bucket depends on the hasher.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { customers: SourceBudget::new(hasher), spent: Duration::ZERO }
    }

    /// Begins another turn of the loop.
    pub(crate) const fn begin_turn(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Begins work for a client, which is to be [done](Self::done) at once.
    ///
    /// # Errors
    /// There is no time for it now.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        client: IpAddr,
        step: Step,
    ) -> Result<Work, NoTime> {
        self.admit(now, Prefix::customer(client), step)?;
        Ok(Work { customer: Prefix::customer(client), begun: thread_cpu_time() })
    }

    /// Ends work, and charges what it took.
    pub(crate) fn done(&mut self, now: Instant, work: Work) {
        self.charge(now, work.customer, thread_cpu_time().saturating_sub(work.begun));
    }

    /// Admits work of a customer, which begins nothing yet.
    ///
    /// # Errors
    /// There is no time for it now.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        customer: Prefix,
        step: Step,
    ) -> Result<(), NoTime> {
        let is_late = self.spent >= HANDSHAKE_TIME_PER_TURN / 2;
        let used_at_most = match step {
            _ if self.spent >= HANDSHAKE_TIME_PER_TURN => return Err(NoTime::Turn),
            Step::Unshared => return Ok(()),
            _ if is_late => HANDSHAKE_TIME_FEW,
            Step::Begin => HANDSHAKE_BURST / 4 * 3,
            Step::Continue => HANDSHAKE_BURST,
        };
        // Nothing is taken yet: what it will be is not known.
        if self.customers.spend(now, customer, Duration::ZERO, used_at_most * HANDSHAKE_SHARE) {
            Ok(())
        } else {
            Err(if is_late { NoTime::Turn } else { NoTime::Customer })
        }
    }

    fn charge(&mut self, now: Instant, customer: Prefix, took: Duration) {
        let took = took.clamp(HANDSHAKE_STEP_MIN, HANDSHAKE_STEP_MAX);
        self.spent += took;
        // Who was admitted had used no more than the burst: the whole of one step is taken.
        let most = (HANDSHAKE_BURST + HANDSHAKE_STEP_MAX) * HANDSHAKE_SHARE;
        self.customers.spend(now, customer, took * HANDSHAKE_SHARE, most);
    }
}

impl Worker {
    /// Begins work for a client as [`Handshakes::begin`] does, without shares where addresses have none.
    pub(crate) fn begin_handshake_work(
        &mut self,
        client: IpAddr,
        step: Step,
        transport: Transport,
    ) -> Result<Work, NoTime> {
        let admission = match transport {
            Transport::Dtls => &self.dtls_admission,
            Transport::Udp | Transport::Tcp | Transport::Tls => &self.admission,
        };
        let step = if admission.is_by_customer() { step } else { Step::Unshared };
        self.handshakes.begin(self.now.instant, client, step)
    }

    /// Tells the operator that a client waits, or that its datagram is dropped.
    pub(crate) fn warn_of_handshakes(&mut self, client: IpAddr, why: NoTime) {
        let customer = Prefix::customer(client);
        let what = match why {
            NoTime::Turn => "all together take more than there is",
            NoTime::Customer => "it has used its share",
        };
        let now = self.now.instant;
        self.observer.warn(now, Trouble::Handshakes, &format_args!("{customer}: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(250);

    fn handshakes() -> Handshakes {
        Handshakes::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(100_000 + millis)
    }

    fn customer(number: u8) -> Prefix {
        Prefix::customer(IpAddr::from([192, 0, 2, number]))
    }

    /// Steps of this cost until there is no time, and why.
    fn steps(handshakes: &mut Handshakes, now: Instant, who: Prefix, step: Step) -> (u32, NoTime) {
        let mut steps = 0;
        loop {
            match handshakes.admit(now, who, step) {
                Ok(()) => handshakes.charge(now, who, STEP),
                Err(why) => return (steps, why),
            }
            steps += 1;
        }
    }

    /// The same over turns that never end for want of time.
    fn steps_over_turns(handshakes: &mut Handshakes, now: Instant, step: Step) -> u32 {
        let mut all = 0;
        loop {
            handshakes.begin_turn();
            match steps(handshakes, now, customer(1), step) {
                (0, why) => {
                    assert_eq!(why, NoTime::Customer);
                    return all;
                }
                (steps, _) => all += steps,
            }
        }
    }

    #[test]
    fn a_turn_has_so_much_time_and_the_last_half_is_for_who_has_used_little() {
        let mut handshakes = handshakes();
        steps_over_turns(&mut handshakes, at(0), Step::Begin);
        // A flooder whose share has room again for more than a turn has.
        let later = at(10_000);
        handshakes.begin_turn();
        let half = HANDSHAKE_TIME_PER_TURN.as_micros() as u32 / 2 / 250;
        assert_eq!(
            steps(&mut handshakes, later, customer(1), Step::Begin),
            (half, NoTime::Turn),
            "the first half"
        );
        assert_eq!(
            steps(&mut handshakes, later, customer(2), Step::Begin),
            (half, NoTime::Turn),
            "a newcomer has the rest"
        );
        assert_eq!(handshakes.admit(later, customer(3), Step::Continue), Err(NoTime::Turn));
        handshakes.begin_turn();
        assert_eq!(handshakes.admit(later, customer(3), Step::Begin), Ok(()));
    }

    #[test]
    fn a_customer_has_a_share_and_what_has_begun_may_be_finished() {
        let mut handshakes = handshakes();
        let begun = steps_over_turns(&mut handshakes, at(0), Step::Begin);
        let burst = (HANDSHAKE_BURST.as_micros() / STEP.as_micros()) as u32;
        assert!((burst * 3 / 4..=burst * 3 / 4 + 1).contains(&begun), "{begun} of {burst}");
        let finished = steps_over_turns(&mut handshakes, at(0), Step::Continue);
        assert!((burst / 4 - 1..=burst / 4 + 1).contains(&finished), "{finished} of {burst}");
        // Nobody else pays for it.
        handshakes.begin_turn();
        assert_eq!(handshakes.admit(at(0), customer(2), Step::Begin), Ok(()));
        // What it may use afterwards is its share of the time that passes.
        let later = at(10_000);
        let refilled = steps_over_turns(&mut handshakes, later, Step::Continue);
        let share = (Duration::from_secs(10) / HANDSHAKE_SHARE).as_micros() / STEP.as_micros();
        assert!(refilled.abs_diff(share as u32) <= 1, "{refilled} instead of {share}");
    }

    #[test]
    fn a_step_that_seems_to_cost_nothing_is_charged_and_a_long_one_forgiven() {
        let mut handshakes = handshakes();
        let mut steps = 0;
        while handshakes.admit(at(0), customer(1), Step::Begin).is_ok() {
            handshakes.charge(at(0), customer(1), Duration::ZERO);
            steps += 1;
        }
        assert_eq!(steps, HANDSHAKE_TIME_PER_TURN.as_micros() / HANDSHAKE_STEP_MIN.as_micros());
        handshakes.begin_turn();
        handshakes.charge(at(0), customer(2), Duration::from_secs(100));
        handshakes.begin_turn();
        let later = Instant::ZERO + (HANDSHAKE_STEP_MAX * HANDSHAKE_SHARE);
        let later = at(later.saturating_since(Instant::ZERO).as_millis() as u64);
        assert_eq!(handshakes.admit(later, customer(2), Step::Begin), Ok(()));
    }

    #[test]
    fn behind_an_address_of_many_customers_only_the_turn_is_bounded() {
        let mut handshakes = handshakes();
        for _ in 0..10_000 {
            handshakes.begin_turn();
            let (steps, why) = steps(&mut handshakes, at(0), customer(1), Step::Unshared);
            assert_eq!(
                (u128::from(steps), why),
                (HANDSHAKE_TIME_PER_TURN.as_micros() / 250, NoTime::Turn)
            );
        }
    }

    #[test]
    fn one_customer_of_ipv6_has_one_share() {
        let [one, two] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(Prefix::customer(one), Prefix::customer(two));
        let mut handshakes = handshakes();
        let work = handshakes.begin(at(0), one, Step::Begin).unwrap();
        handshakes.done(at(0), work);
        assert!(handshakes.spent >= HANDSHAKE_STEP_MIN);
    }
}
