//! Measures of each cell, from the results of single steps.

use super::cells::Cell;
use super::plan::{COMMON_RATE, MEMORY, MOST};
use crate::outcome::{
    BUSY, Better, ComparedCell, CoreUse, Latency, Limit, Outcome, RawStep, Requests, Traffic, Used,
    measure,
};
use crate::traffic::Transport;

/// A quantity of a step's result: name, unit, better direction, step, and its value.
type Quantity = (&'static str, &'static str, Better, &'static str, fn(&Outcome) -> Option<f64>);

/// Utilisation of the server's cores at the highest rate: below 100 % the server was not the limit.
const SERVER_BUSY: Quantity =
    ("server cores busy, at most", "%", Better::Neither, MOST, |outcome| busy(outcome, is_server));

/// Utilisation of the other cores at the highest rate.
const OTHERS_BUSY: Quantity =
    ("other cores busy, at most", "%", Better::Neither, MOST, |outcome| busy(outcome, is_other));

/// CPU time of the server's own threads.
const THREADS: Quantity =
    ("of that, the server's threads, at a fixed load", "ns", Better::Neither, COMMON_RATE, threads);

const TRAFFIC: [Quantity; 11] = [
    ("throughput at ≤ 1 % loss", "packets/s", Better::Higher, MOST, most),
    ("server cores per packet, at most", "ns", Better::Lower, MOST, |outcome| {
        per_packet(&outcome.find_max()?.confirmed, is_server)
    }),
    SERVER_BUSY,
    OTHERS_BUSY,
    ("server cores per packet, at a fixed load", "ns", Better::Lower, COMMON_RATE, |outcome| {
        per_packet(outcome.traffic()?, is_server)
    }),
    THREADS,
    ("other cores per packet, at a fixed load", "ns", Better::Neither, COMMON_RATE, |outcome| {
        per_packet(outcome.traffic()?, is_other)
    }),
    ("latency p50", "ns", Better::Lower, COMMON_RATE, |outcome| latency(outcome, |it| it.p50)),
    ("latency p99", "ns", Better::Lower, COMMON_RATE, |outcome| latency(outcome, |it| it.p99)),
    ("latency p99.9", "ns", Better::Lower, COMMON_RATE, |outcome| latency(outcome, |it| it.p999)),
    ("lost at a fixed load", "%", Better::Lower, COMMON_RATE, |outcome| {
        Some(100.0 * outcome.traffic()?.loss())
    }),
];

/// Additional quantities of packets over streams.
const STREAMS: [Quantity; 1] =
    [("held back at a fixed load", "%", Better::Lower, COMMON_RATE, |outcome| {
        Some(100.0 * outcome.traffic()?.held_back())
    })];

const ALLOCATIONS: [Quantity; 9] = [
    ("allocations, at most", "per second", Better::Higher, MOST, most),
    ("server cores per allocation, at most", "ns", Better::Lower, MOST, per_request),
    ("of that, the server's threads, at most", "ns", Better::Neither, MOST, threads),
    SERVER_BUSY,
    OTHERS_BUSY,
    ("server cores per allocation, at a fixed load", "ns", Better::Lower, COMMON_RATE, per_request),
    THREADS,
    ("allocation latency p50", "ns", Better::Lower, COMMON_RATE, |it| latency(it, |it| it.p50)),
    ("allocation latency p99", "ns", Better::Lower, COMMON_RATE, |it| latency(it, |it| it.p99)),
];

const FOOTPRINT: [Quantity; 4] = [
    ("memory of an idle allocation", "bytes", Better::Lower, MEMORY, |outcome| {
        Some(outcome.footprint()?.per_allocation(|memory| memory.pss))
    }),
    ("kernel memory of an idle allocation", "bytes", Better::Lower, MEMORY, |outcome| {
        outcome.footprint()?.known_per_allocation(|memory| memory.kernel)
    }),
    ("memory with 100 allocations", "bytes", Better::Lower, MEMORY, |outcome| {
        Some(outcome.footprint()?.before.pss as f64)
    }),
    ("kernel memory with 100 allocations", "bytes", Better::Lower, MEMORY, |outcome| {
        outcome.footprint()?.before.kernel.map(|bytes| bytes as f64)
    }),
];

/// The measures of a cell over all rounds but the calibration.
pub(super) fn summarise(
    (cell, transport): (Cell, Transport),
    common_rate: Option<u32>,
    (servers, rounds): (usize, u32),
    raw: &[RawStep],
) -> ComparedCell {
    let name = cell.to_string();
    let steps: Vec<_> = raw.iter().filter(|step| step.cell == name && step.round > 0).collect();
    let (quantities, more): (&[Quantity], &[Quantity]) = match cell {
        Cell::Traffic { .. } if transport.is_stream() => (&TRAFFIC, &STREAMS),
        Cell::Traffic { .. } => (&TRAFFIC, &[]),
        Cell::Allocations => (&ALLOCATIONS, &[]),
        Cell::Footprint => (&FOOTPRINT, &[]),
    };
    let value = |task: &str, of: fn(&Outcome) -> Option<f64>, server: usize, round: u32| {
        let step = steps
            .iter()
            .find(|step| (step.server, step.round, step.step.as_str()) == (server, round, task))?;
        of(&step.outcome)
    };
    let measures = quantities.iter().chain(more).map(|&(name, unit, better, task, of)| {
        let values = (0..servers)
            .map(|server| (1..=rounds).map(|round| value(task, of, server, round)).collect())
            .collect();
        // Over streams, where a moment without the core loses nothing, the bound is lower.
        let name =
            if transport.is_stream() { name.replace("≤ 1 %", "≤ 0.1 %") } else { name.into() };
        measure(&name, unit, better, values)
    });
    let measures = measures.collect();
    let generator_limited = (0..servers).map(|server| limited(&steps, server)).collect();
    let ceiling = best(&name, raw.iter().filter(|step| step.server == servers));
    let refused = (0..servers).map(|server| refusals(&steps, server)).collect();
    ComparedCell { name, common_rate, ceiling, measures, generator_limited, refused }
}

/// The highest rate of a cell in any of these steps.
pub(super) fn best<'a>(cell: &str, raw: impl Iterator<Item = &'a RawStep>) -> Option<f64> {
    let steps = raw.filter(|step| step.cell == cell);
    steps.filter_map(|step| most(&step.outcome)).max_by(f64::total_cmp)
}

/// The highest rate of a search or of requests, per second.
pub(super) fn most(outcome: &Outcome) -> Option<f64> {
    let requests = |run: &Requests| run.succeeded as f64 / run.duration.as_secs_f64();
    let found = outcome.find_max().map(|found| found.confirmed.delivered_per_second());
    found.or_else(|| outcome.requests().map(requests))
}

/// Number of rounds in which the load tool was the limit.
fn limited(steps: &[&RawStep], server: usize) -> u32 {
    let limited = steps.iter().filter(|step| {
        let by_generator = |found| matches!(found, Limit::Generator);
        let found = step.outcome.find_max();
        step.server == server
            && (found.is_some_and(|found| by_generator(found.limit)) || has_time(step))
    });
    u32::try_from(limited.count()).unwrap_or(u32::MAX)
}

/// Returns true if the server had time left at its highest rate: a queue, a slow receiver or
/// clients that wait for answers were the limit, and the rate is a lower bound of what the server's
/// core can do.
fn has_time(step: &RawStep) -> bool {
    let at_most = step.step == MOST;
    at_most && busy(&step.outcome, is_server).is_some_and(|busy| busy < BUSY)
}

/// Utilisation of cores at the highest rate, in percent; `None` where they were not watched.
fn busy(outcome: &Outcome, whose: fn(&CoreUse) -> bool) -> Option<f64> {
    let found = outcome.find_max().map(|found| &found.confirmed.used);
    let used = found.or_else(|| outcome.requests().map(|run| &run.used))?;
    let cores: Vec<_> = used.cores.iter().filter(|core| whose(core)).collect();
    let sum: f64 = cores.iter().map(|core| core.busy).sum();
    (!cores.is_empty()).then(|| 100.0 * sum / cores.len() as f64)
}

/// CPU time of the server's threads in nanoseconds per packet or allocation.
fn threads(outcome: &Outcome) -> Option<f64> {
    let packets = outcome.traffic().map(|run| (&run.used, run.delivered));
    let (used, count) =
        packets.or_else(|| outcome.requests().map(|run| (&run.used, run.succeeded)))?;
    let ran = used.process?;
    (count > 0).then(|| ran.as_secs_f64() * 1e9 / count as f64)
}

fn per_packet(traffic: &Traffic, whose: fn(&CoreUse) -> bool) -> Option<f64> {
    nanos_per(&traffic.used, whose, traffic.spec.duration.as_secs_f64(), traffic.delivered)
}

fn per_request(outcome: &Outcome) -> Option<f64> {
    let run = outcome.requests()?;
    nanos_per(&run.used, is_server, run.duration.as_secs_f64(), run.succeeded)
}

/// Busy time of cores in nanoseconds per item; a core with two roles counts once.
fn nanos_per(used: &Used, whose: fn(&CoreUse) -> bool, seconds: f64, count: u64) -> Option<f64> {
    let mut cores: Vec<_> = used.cores.iter().filter(|core| whose(core)).collect();
    cores.sort_by_key(|core| core.core);
    cores.dedup_by_key(|core| core.core);
    if cores.iter().any(|core| is_server(core)) && is_refused(used, seconds) {
        return None;
    }
    let busy: f64 = cores.iter().map(|core| core.busy).sum();
    (count > 0 && !cores.is_empty()).then(|| busy * seconds * 1e9 / count as f64)
}

/// Share of the threads' CPU time that the meter has to show: the two are not read at the same
/// moment.
const SHOWN: f64 = 0.95;

/// Returns true for a reading of the server's cores that cannot be: nothing, or less than the
/// server's own threads ran. `/proc/stat` is no judge: it samples, and shows cores as full that are
/// half idle.
fn is_refused(used: &Used, seconds: f64) -> bool {
    let cores: Vec<_> = used.cores.iter().filter(|core| is_server(core)).collect();
    let busy = seconds * cores.iter().map(|core| core.busy).sum::<f64>();
    let ran = used.process.map_or(0.0, |ran| ran.as_secs_f64());
    !cores.is_empty() && (busy <= 0.0 || busy < SHOWN * ran)
}

/// Number of refused readings of a server.
fn refusals(steps: &[&RawStep], server: usize) -> u32 {
    let refused = |step: &&&RawStep| {
        let found = step.outcome.find_max().map(|found| &found.confirmed);
        let run = found.or_else(|| step.outcome.traffic());
        let run = run.map(|run| (&run.used, run.spec.duration));
        let run = run.or_else(|| step.outcome.requests().map(|run| (&run.used, run.duration)));
        step.server == server
            && run.is_some_and(|(used, time)| is_refused(used, time.as_secs_f64()))
    };
    u32::try_from(steps.iter().filter(refused).count()).unwrap_or(u32::MAX)
}

fn is_server(core: &CoreUse) -> bool {
    core.role == "server"
}

fn is_other(core: &CoreUse) -> bool {
    !is_server(core)
}

fn latency(outcome: &Outcome, part: fn(&Latency) -> u64) -> Option<f64> {
    let traffic = outcome.traffic().and_then(|run| run.latency);
    let latency = traffic.or_else(|| outcome.requests().and_then(|run| run.latency));
    latency.map(|latency| part(&latency) as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn readings_that_cannot_be_are_refused() {
        let used = |busy, millis| Used {
            cores: vec![CoreUse { role: "server".into(), core: 1, busy, stat: [0.0; 6] }],
            process: Some(Duration::from_millis(millis)),
        };
        // Of 2 seconds 0.1 is 200 ms.
        for (busy, millis, refused) in [(0.1, 200, false), (0.1, 220, true), (0.0, 0, true)] {
            let used = used(busy, millis);
            assert_eq!(is_refused(&used, 2.0), refused, "{used:?}");
            assert_eq!(nanos_per(&used, is_server, 2.0, 1000).is_none(), refused);
        }
        assert!(!is_refused(&Used::default(), 2.0));
    }
}
