//! From single runs to what is said of each cell.

use super::cells::Cell;
use super::plan::{COMMON_RATE, MEMORY, MOST};
use super::statistics::measure;
use crate::outcome::{
    Better, ComparedCell, CoreUse, FindMax, Latency, Limit, Measure, Outcome, RawStep, Requests,
    Traffic,
};
use crate::traffic::Transport;

/// A quantity that is read from the outcome of a step.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    better: Better,
    step: &'static str,
    of: fn(&Outcome) -> Option<f64>,
}

/// Whether the server was the limit.
const SERVER_BUSY: Quantity = Quantity {
    name: "server cores busy, at most",
    unit: "%",
    better: Better::Neither,
    step: MOST,
    of: |outcome| busy_at_most(outcome, is_server),
};

/// Whether clients and peer were.
const OTHERS_BUSY: Quantity = Quantity {
    name: "other cores busy, at most",
    unit: "%",
    better: Better::Neither,
    step: MOST,
    of: |outcome| busy_at_most(outcome, is_other),
};

/// What the server does itself, of packets and of allocations.
const THREADS: Quantity = Quantity {
    name: "of that, the server's threads, at the common rate",
    unit: "ns",
    better: Better::Neither,
    step: COMMON_RATE,
    of: threads,
};

/// Of relayed packets.
const TRAFFIC: [Quantity; 11] = [
    Quantity {
        name: "delivered at most",
        unit: "packets/s",
        better: Better::Higher,
        step: MOST,
        of: |outcome| Some(find_max(outcome)?.confirmed.delivered_per_second()),
    },
    Quantity {
        name: "server cores per packet, at most",
        unit: "ns",
        better: Better::Lower,
        step: MOST,
        of: |outcome| per_packet(&find_max(outcome)?.confirmed, is_server),
    },
    SERVER_BUSY,
    OTHERS_BUSY,
    Quantity {
        name: "server cores per packet, at the common rate",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| per_packet(traffic(outcome)?, is_server),
    },
    THREADS,
    Quantity {
        name: "other cores per packet, at the common rate",
        unit: "ns",
        better: Better::Neither,
        step: COMMON_RATE,
        of: |outcome| per_packet(traffic(outcome)?, is_other),
    },
    Quantity {
        name: "latency, half of the packets",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| latency(traffic(outcome)?.latency, |latency| latency.p50),
    },
    Quantity {
        name: "latency, 99 of 100",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| latency(traffic(outcome)?.latency, |latency| latency.p99),
    },
    Quantity {
        name: "latency, 999 of 1000",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| latency(traffic(outcome)?.latency, |latency| latency.p999),
    },
    Quantity {
        name: "lost at the common rate",
        unit: "%",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| Some(100.0 * traffic(outcome)?.loss()),
    },
];

/// Of packets relayed to and from clients with connections, besides.
const STREAMS: [Quantity; 1] = [Quantity {
    name: "held back at the common rate",
    unit: "%",
    better: Better::Lower,
    step: COMMON_RATE,
    of: |outcome| Some(100.0 * traffic(outcome)?.held_back()),
}];

/// A server whose cores were less busy than this, in percent, was not the limit where others can be
/// without a sign of it.
const BUSY: f64 = 90.0;

/// Of allocations.
const ALLOCATIONS: [Quantity; 9] = [
    Quantity {
        name: "allocations at most",
        unit: "per second",
        better: Better::Higher,
        step: MOST,
        of: |outcome| Some(per_second(requests(outcome)?)),
    },
    Quantity {
        name: "server cores per allocation, at most",
        unit: "ns",
        better: Better::Lower,
        step: MOST,
        of: |outcome| per_request(requests(outcome)?),
    },
    Quantity {
        name: "of that, the server's threads, at most",
        unit: "ns",
        better: Better::Neither,
        step: MOST,
        of: threads,
    },
    SERVER_BUSY,
    OTHERS_BUSY,
    Quantity {
        name: "server cores per allocation, at the common rate",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| per_request(requests(outcome)?),
    },
    THREADS,
    Quantity {
        name: "time to an allocation, half of them",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| latency(requests(outcome)?.latency, |latency| latency.p50),
    },
    Quantity {
        name: "time to an allocation, 99 of 100",
        unit: "ns",
        better: Better::Lower,
        step: COMMON_RATE,
        of: |outcome| latency(requests(outcome)?.latency, |latency| latency.p99),
    },
];

/// Of memory.
const FOOTPRINT: [Quantity; 1] = [Quantity {
    name: "memory of an idle allocation",
    unit: "bytes",
    better: Better::Lower,
    step: MEMORY,
    of: |outcome| match outcome {
        Outcome::Footprint(footprint) => Some(footprint.per_allocation(|memory| memory.pss)),
        Outcome::Traffic(_)
        | Outcome::FindMax(_)
        | Outcome::Requests(_)
        | Outcome::Hostile(_)
        | Outcome::Compare(_)
        | Outcome::Lab(_)
        | Outcome::Programs(_) => None,
    },
}];

/// All that is said of a cell, by the runs of the rounds that count.
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
    let value = |quantity: &Quantity, server: usize, round: u32| {
        let step = steps.iter().find(|step| {
            (step.server, step.round, step.step.as_str()) == (server, round, quantity.step)
        })?;
        (quantity.of)(&step.outcome)
    };
    let measures = quantities.iter().chain(more).map(|quantity| {
        let values = (0..servers)
            .map(|server| (1..=rounds).map(|round| value(quantity, server, round)).collect())
            .collect();
        measure(quantity.name, quantity.unit, quantity.better, values)
    });
    let measures: Vec<Measure> = measures.collect();
    let generator_limited = (0..servers).map(|server| limited(&steps, server)).collect::<Vec<_>>();
    let ceiling = best(&name, raw.iter().filter(|step| step.server == servers));
    ComparedCell { name, common_rate, ceiling, measures, generator_limited }
}

/// The most that was done in a cell, by whomever.
pub(super) fn best<'a>(cell: &str, raw: impl Iterator<Item = &'a RawStep>) -> Option<f64> {
    let steps = raw.filter(|step| step.cell == cell);
    steps.filter_map(|step| most(&step.outcome)).max_by(f64::total_cmp)
}

/// How much a server did at most, as far as a step tells.
pub(super) fn most(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::FindMax(found) => Some(found.confirmed.delivered_per_second()),
        Outcome::Requests(requests) => Some(per_second(requests)),
        Outcome::Traffic(_)
        | Outcome::Hostile(_)
        | Outcome::Footprint(_)
        | Outcome::Compare(_)
        | Outcome::Lab(_)
        | Outcome::Programs(_) => None,
    }
}

/// Rounds in which not the server set the limit.
fn limited(steps: &[&RawStep], server: usize) -> u32 {
    let limited = steps.iter().filter(|step| {
        step.server == server
            && (find_max(&step.outcome).is_some_and(|found| found.limit == Limit::Generator)
                || has_time(step))
    });
    u32::try_from(limited.count()).unwrap_or(u32::MAX)
}

/// Over streams whoever receives too slowly holds the server back, which looks like the server's limit;
/// and who waits for an answer before asking on asks no more than it can.
fn has_time(step: &RawStep) -> bool {
    let waits_for_others = match &step.outcome {
        Outcome::FindMax(found) => found.confirmed.transport.is_stream(),
        Outcome::Requests(_) => step.step == MOST,
        Outcome::Traffic(_)
        | Outcome::Hostile(_)
        | Outcome::Footprint(_)
        | Outcome::Compare(_)
        | Outcome::Lab(_)
        | Outcome::Programs(_) => false,
    };
    waits_for_others && busy_at_most(&step.outcome, is_server).is_some_and(|busy| busy < BUSY)
}

/// How busy cores were in a run of as much as possible, in percent; `None` where they were not watched.
fn busy_at_most(outcome: &Outcome, whose: fn(&CoreUse) -> bool) -> Option<f64> {
    let used = match outcome {
        Outcome::FindMax(found) => &found.confirmed.used,
        Outcome::Requests(requests) => &requests.used,
        Outcome::Traffic(_)
        | Outcome::Hostile(_)
        | Outcome::Footprint(_)
        | Outcome::Compare(_)
        | Outcome::Lab(_)
        | Outcome::Programs(_) => return None,
    };
    let busy: Vec<f64> =
        used.cores.iter().filter(|core| whose(core)).map(|core| core.busy).collect();
    (!busy.is_empty()).then(|| 100.0 * busy.iter().sum::<f64>() / busy.len() as f64)
}

/// Nanoseconds that the server's threads ran for each packet or allocation.
fn threads(outcome: &Outcome) -> Option<f64> {
    let packets = traffic(outcome).map(|run| (&run.used, run.delivered));
    let done = packets.or_else(|| requests(outcome).map(|run| (&run.used, run.succeeded)));
    let (used, count) = done?;
    let ran = used.process?;
    (count > 0).then(|| ran.as_secs_f64() * 1e9 / count as f64)
}

fn find_max(outcome: &Outcome) -> Option<&FindMax> {
    if let Outcome::FindMax(found) = outcome { Some(found) } else { None }
}

fn traffic(outcome: &Outcome) -> Option<&Traffic> {
    if let Outcome::Traffic(traffic) = outcome { Some(traffic) } else { None }
}

fn requests(outcome: &Outcome) -> Option<&Requests> {
    if let Outcome::Requests(requests) = outcome { Some(requests) } else { None }
}

fn per_second(requests: &Requests) -> f64 {
    requests.succeeded as f64 / requests.duration.as_secs_f64()
}

fn per_packet(traffic: &Traffic, whose: fn(&CoreUse) -> bool) -> Option<f64> {
    nanos_per(&traffic.used.cores, whose, traffic.spec.duration.as_secs_f64(), traffic.delivered)
}

fn per_request(requests: &Requests) -> Option<f64> {
    nanos_per(&requests.used.cores, is_server, requests.duration.as_secs_f64(), requests.succeeded)
}

/// Nanoseconds of the cores for each of so many; a core that has two roles counts once.
fn nanos_per(
    cores: &[CoreUse],
    whose: fn(&CoreUse) -> bool,
    seconds: f64,
    count: u64,
) -> Option<f64> {
    let mut seen = Vec::new();
    let mut busy = 0.0;
    for core in cores.iter().filter(|core| whose(core)) {
        if !seen.contains(&core.core) {
            seen.push(core.core);
            busy += core.busy;
        }
    }
    (count > 0 && !seen.is_empty()).then(|| busy * seconds * 1e9 / count as f64)
}

fn is_server(core: &CoreUse) -> bool {
    core.role == "server"
}

fn is_other(core: &CoreUse) -> bool {
    core.role != "server"
}

fn latency(latency: Option<Latency>, part: fn(&Latency) -> u64) -> Option<f64> {
    latency.map(|latency| part(&latency) as f64)
}
