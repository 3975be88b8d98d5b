//! The schedule of bursts, kept by the clock, never by the server.

use std::ops::Range;

use crate::engine::plan::{Plan, Window};

/// A sender that was preempted for up to this long catches up; older bursts are skipped and
/// counted. After a longer pause, catching up would be a flood.
const CATCH_UP_NANOS: u64 = 10_000_000;

/// The schedule of one sender: its part of the bursts, at equal distances.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    begin: u64,
    window: Window,
    /// The number of the next burst.
    next: u64,
    /// Skipped bursts of the measured time.
    missed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Unlimited.
    Saturating,
    /// `bursts` bursts per `nanos` nanoseconds.
    Steady { bursts: u128, nanos: u128 },
}

/// The next action of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send this number of bursts, at least one.
    Now(u64),
    /// Nothing before this time.
    At(u64),
    /// The run is over.
    Over,
}

impl Pacer {
    /// The schedule of a sender that has `flows` of the flows of the plan: it gets their share of
    /// the rate.
    #[must_use]
    pub(crate) fn new(plan: &Plan, flows: u32) -> Self {
        let pace = plan.spec.rate.map_or(Pace::Saturating, |rate| Pace::Steady {
            bursts: u128::from(rate) * u128::from(flows),
            nanos: u128::from(plan.spec.shape.round(plan.flows)) * 1_000_000_000,
        });
        Self { pace, begin: plan.begin, window: plan.window, next: 0, missed: 0 }
    }

    /// The action at `now`. Bursts are taken off the schedule by [`sent`](Self::sent).
    pub(crate) fn due(&mut self, now: u64) -> Due {
        if now >= self.window.end {
            return Due::Over;
        }
        if now < self.begin {
            return Due::At(self.begin);
        }
        let Pace::Steady { .. } = self.pace else { return Due::Now(1) };
        let forgotten = self.scheduled(now.saturating_sub(CATCH_UP_NANOS));
        if forgotten > self.next {
            self.leave_out(self.next..forgotten);
        }
        match self.scheduled(now) {
            scheduled if scheduled > self.next => Due::Now(scheduled - self.next),
            _ => Due::At(self.time_of(self.next).max(now + 1)),
        }
    }

    /// A burst was sent.
    pub(crate) const fn sent(&mut self) {
        self.next += 1;
    }

    /// Ends the schedule and returns the bursts of the measured time: skipped, and in all. An
    /// unlimited rate has no schedule.
    #[must_use]
    pub(crate) fn finish(mut self) -> (u64, u64) {
        let Pace::Steady { .. } = self.pace else { return (0, 0) };
        let (first, last) = (self.scheduled(self.window.start), self.scheduled(self.window.end));
        if last > self.next {
            self.leave_out(self.next..last);
        }
        (self.missed, last - first)
    }

    fn leave_out(&mut self, bursts: Range<u64>) {
        let first = bursts.start.max(self.scheduled(self.window.start));
        self.missed += bursts.end.saturating_sub(first);
        self.next = bursts.end;
    }

    /// Number of bursts scheduled before `time`.
    fn scheduled(&self, time: u64) -> u64 {
        match self.pace {
            Pace::Saturating => 0,
            Pace::Steady { bursts, nanos } => {
                let elapsed = u128::from(time.saturating_sub(self.begin));
                u64::try_from((elapsed * bursts).div_ceil(nanos)).unwrap_or(u64::MAX)
            }
        }
    }

    /// Scheduled time of burst `number`.
    fn time_of(&self, number: u64) -> u64 {
        match self.pace {
            Pace::Steady { bursts, nanos } if bursts > 0 => {
                let after = u128::from(number) * nanos / bursts;
                self.begin.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
            }
            Pace::Steady { .. } => u64::MAX,
            Pace::Saturating => self.begin,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::traffic::{Direction, Shape, TrafficSpec};

    const MILLI: u64 = 1_000_000;
    const BEGIN: u64 = 5_000_000_000;

    fn plan(shape: Shape, rate: Option<u32>) -> Plan {
        let spec = TrafficSpec {
            shape,
            direction: Direction::ClientToPeer,
            size: 200,
            rate,
            warm_up: Duration::from_millis(100),
            duration: Duration::from_secs(1),
        };
        Plan::new(1, &spec, 10, BEGIN)
    }

    /// Sends all due bursts every `step` nanoseconds; returns the packets in all, and the result of
    /// the schedule.
    fn drive(plan: &Plan, flows: u32, step: u64) -> (u64, (u64, u64)) {
        let mut pacer = Pacer::new(plan, flows);
        let (mut now, mut bursts) = (plan.begin - MILLI, 0);
        loop {
            match pacer.due(now) {
                Due::Over => return (bursts * u64::from(plan.spec.shape.burst()), pacer.finish()),
                Due::Now(due) => {
                    (0..due).for_each(|_| pacer.sent());
                    bursts += due;
                    now += step;
                }
                Due::At(time) => {
                    assert!(time > now);
                    now = time;
                }
            }
        }
    }

    #[test]
    fn the_rate_is_kept_to_the_packet() {
        let plan = plan(Shape::Audio, Some(10_000));
        assert_eq!(drive(&plan, 10, 1000), (11_000, (0, 10_000)));
        assert_eq!(drive(&plan, 3, 1000), (3_300, (0, 3_000)), "three flows of ten");
        // Late, and caught up, but for bursts due after the last check.
        assert_eq!(drive(&plan, 10, 3 * MILLI), (10_981, (19, 10_000)));
    }

    #[test]
    fn bursts_are_scheduled_whole() {
        assert_eq!(drive(&plan(Shape::Video, Some(10_000)), 10, 1000), (11_000, (0, 1_000)));
    }

    #[test]
    fn a_bulk_transfer_among_calls_is_part_of_the_rate() {
        // Nine packets and 54 in a turn of all: 1000 turns in a second.
        let plan = plan(Shape::Uneven, Some(63_000));
        let (bursts, (missed, scheduled)) = drive(&plan, 10, 1000);
        assert_eq!((bursts, missed, scheduled), (11_000, 0, 10_000));
    }

    #[test]
    fn a_slow_sender_skips_and_counts() {
        let plan = plan(Shape::Audio, Some(10_000));
        let mut pacer = Pacer::new(&plan, 10);
        assert_eq!(pacer.due(BEGIN), Due::At(BEGIN + 1), "the first is due just behind the begin");
        assert_eq!(pacer.due(plan.window.start), Due::Now(100), "10 ms are caught up");
        (0..100).for_each(|_| pacer.sent());
        assert_eq!(pacer.due(plan.window.start + 500 * MILLI), Due::Now(100));
        (0..100).for_each(|_| pacer.sent());
        assert_eq!(pacer.due(plan.window.end), Due::Over);
        // Of 10,000 bursts those of 490 ms and of the last 500 ms; the warm-up does not count.
        assert_eq!(pacer.finish(), (9_900, 10_000));
    }

    #[test]
    fn saturation_is_always_due_and_never_behind() {
        let plan = plan(Shape::Flood, None);
        let mut pacer = Pacer::new(&plan, 10);
        assert_eq!(pacer.due(BEGIN - 1), Due::At(BEGIN));
        assert_eq!(pacer.due(BEGIN), Due::Now(1));
        pacer.sent();
        assert_eq!(pacer.due(plan.window.end - 1), Due::Now(1));
        assert_eq!(pacer.due(plan.window.end), Due::Over);
        assert_eq!(pacer.finish(), (0, 0));
    }

    #[test]
    fn a_rate_of_nothing_waits_for_the_end() {
        let mut pacer = Pacer::new(&plan(Shape::Audio, Some(0)), 10);
        assert_eq!(pacer.due(BEGIN + 1), Due::At(u64::MAX));
    }

    #[test]
    fn large_rates_over_long_times_do_not_overflow() {
        let mut plan = plan(Shape::Audio, Some(u32::MAX));
        plan.window.end = BEGIN + 86_400_000_000_000;
        let mut pacer = Pacer::new(&plan, 10);
        assert!(matches!(pacer.due(plan.window.end - 1), Due::Now(_)));
    }
}
