//! Frames at a given rate: in clumps, as a network card hands packets to the kernel, and because a
//! call for a single frame costs as much as fifty frames in one.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::source::{Source, SourceRun};
use crate::engine::{Due, Gauge, Pacer, Plan, Sent, now};

/// How far apart clumps are, at most: as far as interrupts of a busy network card.
const CLUMP_NANOS: u64 = 200_000;

/// Packets in a clump, unless one flow sends more when it has its turn. The other end of a veth link
/// has room for 256.
const CLUMP_PACKETS: u64 = 100;

/// Packets in a call where the rate is not bounded.
const SATURATING_PACKETS: u64 = 1024;

/// The longest sleep, so that a halt is seen soon.
const SLEEP_NANOS_MAX: u64 = 50_000_000;

/// The kernel wakes a sleeper about so late: the rest is waited for awake.
const AWAKE_NANOS: u64 = 80_000;

/// Sends the frames of `flows` flows by the plan, until its end or until halted.
pub(super) fn run(source: &mut Source, plan: &Plan, flows: u32, gauge: Gauge<'_>) -> Result<Sent> {
    let burst = u64::from(plan.spec.shape.burst());
    source.begin(&SourceRun {
        run: plan.run,
        size: plan.spec.size,
        burst: plan.spec.shape.burst(),
        window: plan.window.start..plan.window.end,
    })?;
    let clump = Clump::of(plan, flows);
    let mut pacer = Pacer::new(plan, flows);
    // When the next clump may leave.
    let mut next = 0;
    while !gauge.halted() {
        let time = now();
        match pacer.due(time) {
            Due::Over => break,
            // The last clump is not put off behind the end.
            Due::At(at) if time + clump.nanos >= plan.window.end => wait(at),
            Due::At(at) => wait(at.max(next)),
            Due::Now(bursts) => {
                let bursts = bursts.clamp(clump.bursts_min, clump.bursts_max);
                // A clump is at most SATURATING_PACKETS and one burst.
                source.inject(u32::try_from(bursts * burst).unwrap_or(u32::MAX))?;
                (0..bursts).for_each(|_| pacer.sent());
                gauge.sent.fetch_add(bursts * burst, Relaxed);
                next = (next + clump.nanos).max(time);
            }
        }
    }
    let (missed, scheduled) = pacer.finish();
    Ok(Sent {
        sent: source.made()?.measured,
        refused: 0,
        scheduled: scheduled * burst,
        missed: missed * burst,
    })
}

/// What leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clump {
    bursts_min: u64,
    bursts_max: u64,
    nanos: u64,
}

impl Clump {
    fn of(plan: &Plan, flows: u32) -> Self {
        let burst = u64::from(plan.spec.shape.burst());
        let Some(rate) = plan.spec.rate else {
            let bursts = SATURATING_PACKETS.div_ceil(burst);
            return Self { bursts_min: bursts, bursts_max: bursts, nanos: 0 };
        };
        let bursts_max = (CLUMP_PACKETS / burst).max(1);
        // The time in which these flows have so many to send.
        let packets = u128::from(bursts_max * burst) * u128::from(plan.flows) * 1_000_000_000;
        let nanos = packets / (u128::from(rate) * u128::from(flows)).max(1);
        let nanos = u64::try_from(nanos).map_or(CLUMP_NANOS, |nanos| nanos.min(CLUMP_NANOS));
        Self { bursts_min: 1, bursts_max, nanos }
    }
}

/// Waits until then, or a part of it.
fn wait(until: u64) {
    let left = until.saturating_sub(now()).min(SLEEP_NANOS_MAX);
    if left > AWAKE_NANOS {
        thread::sleep(Duration::from_nanos(left - AWAKE_NANOS));
    } else {
        std::hint::spin_loop();
    }
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
        let clump = |shape, rate, flows| {
            let Clump { bursts_min, bursts_max, nanos } = Clump::of(&plan(shape, rate), flows);
            (bursts_min, bursts_max, nanos)
        };
        assert_eq!(clump(Shape::Audio, Some(1000), 10), (1, 100, 200_000));
        assert_eq!(clump(Shape::Audio, Some(500_000), 10), (1, 100, 200_000));
        assert_eq!(clump(Shape::Audio, Some(1_000_000), 10), (1, 100, 100_000));
        assert_eq!(clump(Shape::Audio, Some(1_000_000), 5), (1, 100, 200_000), "half of the flows");
        assert_eq!(clump(Shape::Video, Some(1_000_000), 10), (1, 10, 100_000));
        assert_eq!(clump(Shape::Flood, Some(1_000_000), 10), (1, 1, 64_000));
        assert_eq!(clump(Shape::Audio, None, 10), (1024, 1024, 0));
        assert_eq!(clump(Shape::Video, None, 10), (103, 103, 0));
    }
}
