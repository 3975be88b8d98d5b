//! Frames at a given rate, in clumps, as a network card delivers packets. The program keeps the
//! time, by a schedule computed here.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::source::{Pace, Source, SourceRun};
use crate::engine::{Gauge, Plan, Sent, now};

/// Largest interval of clumps, in nanoseconds: that of interrupts of a busy network card.
const CLUMP_NANOS: u64 = 200_000;

/// Packets in a clump, unless one flow sends more when it has its turn. The other end of a veth
/// link has room for 256.
const CLUMP_PACKETS: u64 = 100;

/// Looks at the clock per call: some ten milliseconds. The end of the run is checked between calls,
/// and each call leaves the kernel a page pool to free.
const LOOKS: u32 = 1 << 17;

/// The longest sleep before a run begins: a halt is noticed within it.
const SLEEP_NANOS_MAX: u64 = 50_000_000;

/// Sends the frames of `flows` flows by the plan, until its end or until halted. The core is busy
/// all the time.
pub(super) fn run(source: &mut Source, plan: &Plan, flows: u32, gauge: Gauge<'_>) -> Result<Sent> {
    let burst = u64::from(plan.spec.shape.burst());
    let pace = pace(plan, flows);
    let window = plan.window.start..plan.window.end;
    let nanos = (window.end - window.start) << 8;
    let scheduled = nanos.checked_div(pace.step).unwrap_or(0);
    source.begin(&SourceRun {
        run: plan.run,
        size: plan.spec.size,
        burst: plan.spec.shape.burst(),
        window,
        pace,
    })?;
    let mut told = 0;
    while !gauge.halted() {
        let time = now();
        if time >= plan.window.end {
            break;
        }
        if time < plan.begin {
            thread::sleep(Duration::from_nanos((plan.begin - time).min(SLEEP_NANOS_MAX)));
            continue;
        }
        source.inject(LOOKS)?;
        let made = source.made()?.all;
        gauge.sent.fetch_add(made - told, Relaxed);
        told = made;
    }
    let made = source.made()?;
    Ok(Sent {
        sent: made.measured,
        refused: 0,
        scheduled: scheduled * burst,
        missed: made.missed.min(scheduled) * burst,
    })
}

/// The schedule of a sender that has `flows` of the flows of the plan: it gets their share of the
/// rate.
fn pace(plan: &Plan, flows: u32) -> Pace {
    let time = plan.begin..plan.window.end;
    let Some(rate) = plan.spec.rate else { return Pace { time, ..Pace::AT_ONCE } };
    let burst = u64::from(plan.spec.shape.burst());
    let of_all = u128::from(burst) * u128::from(plan.flows) * 1_000_000_000;
    let step = (of_all << 8) / (u128::from(rate) * u128::from(flows)).max(1);
    let step = u64::try_from(step).unwrap_or(u64::MAX).max(1);
    let bursts = (CLUMP_PACKETS / burst).max(1);
    Pace { time, clump: (step.saturating_mul(bursts) >> 8).min(CLUMP_NANOS), step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Direction, Shape, TrafficSpec};

    fn plan(shape: Shape, rate: Option<u32>) -> Plan {
        let spec = TrafficSpec {
            shape,
            direction: Direction::ClientToPeer,
            size: 200,
            rate,
            warm_up: Duration::from_millis(100),
            duration: Duration::from_secs(1),
        };
        Plan::new(1, &spec, 10, 0)
    }

    #[test]
    fn clumps_hold_what_is_due_in_their_time() {
        let pace = |shape, rate, flows| {
            let Pace { clump, step, .. } = pace(&plan(shape, rate), flows);
            (clump, step >> 8)
        };
        assert_eq!(pace(Shape::Audio, Some(1000), 10), (200_000, 1_000_000));
        assert_eq!(pace(Shape::Audio, Some(500_000), 10), (200_000, 2000));
        assert_eq!(pace(Shape::Audio, Some(1_000_000), 10), (100_000, 1000));
        assert_eq!(pace(Shape::Audio, Some(1_000_000), 5), (200_000, 2000), "half of the flows");
        assert_eq!(pace(Shape::Video, Some(1_000_000), 10), (100_000, 10_000));
        assert_eq!(pace(Shape::Audio, None, 10).1, 0);
    }
}
