//! Single runs: latency percentiles, loss by rate, requests.

use super::page::{COLOURS, Cell, Section, cards, table};
use super::plot::{Axis, Line, Plot};
use super::scale::Spread;
use super::{escape, units};
use crate::outcome::{FindMax, Latency, Outcome, Requests, Traffic};
use crate::traffic::TrafficSpec;

/// What was measured outside of comparisons.
pub(super) fn section(outcomes: &[Outcome]) -> Option<Section> {
    let searches: Vec<&FindMax> = outcomes.iter().filter_map(search).collect();
    let single: Vec<&Outcome> = outcomes.iter().filter(|outcome| row(outcome).is_some()).collect();
    if single.is_empty() {
        return None;
    }
    let loss = searches.iter().enumerate().map(|(number, found)| Line {
        name: format!("search {}", number + 1),
        joined: false,
        colour: number % COLOURS,
        points: tried(std::iter::once(*found)),
    });
    let latencies = single.iter().enumerate().filter_map(|(number, outcome)| {
        percentiles(&name(outcome), number % COLOURS, &[latency(outcome)?])
    });
    Some(Section {
        title: "Runs".to_owned(),
        lead: "Delivered packets are those that arrived of the packets sent in the measured time."
            .to_owned(),
        body: cards([
            ("Loss by offered rate".to_owned(), loss_plot(loss.collect())),
            ("Latency".to_owned(), latency_plot(latencies.collect())),
        ]) + &rows(&single),
    })
}

/// A search for the highest rate, if the result is one.
pub(super) const fn search(outcome: &Outcome) -> Option<&FindMax> {
    if let Outcome::FindMax(found) = outcome { Some(found) } else { None }
}

/// The latency of a result, where it has one.
pub(super) const fn latency(outcome: &Outcome) -> Option<Latency> {
    match outcome {
        Outcome::Traffic(run) => run.latency,
        Outcome::FindMax(found) => found.confirmed.latency,
        Outcome::Requests(requests) => requests.latency,
        Outcome::Hostile(hostile) => hostile.probe.latency,
        Outcome::Footprint(_) | Outcome::Compare(_) | Outcome::Lab(_) | Outcome::Programs(_) => {
            None
        }
    }
}

/// A line through the percentiles, each the median of several runs; `None` without any.
pub(super) fn percentiles(name: &str, colour: usize, latencies: &[Latency]) -> Option<Line> {
    // On the axis, 1 in 2, 1 in 10, 1 in 100 and 1 in 1000 packets are slower.
    type Of = fn(&Latency) -> u64;
    let places: [(f64, Of); 4] =
        [(2.0, |l| l.p50), (10.0, |l| l.p90), (100.0, |l| l.p99), (1000.0, |l| l.p999)];
    let points = places
        .iter()
        .map(|(place, of)| {
            let mut values: Vec<u64> = latencies.iter().map(of).collect();
            values.sort_unstable();
            Some((*place, *values.get(values.len() / 2)? as f64))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Line { name: name.to_owned(), joined: true, colour, points })
}

/// Latency by percentile.
pub(super) fn latency_plot(lines: Vec<Line>) -> String {
    Plot {
        title: "latency by percentile".to_owned(),
        x: Axis {
            title: "percentile",
            spread: Spread::Logarithmic,
            write: |one_in| format!("p{}", units::round(100.0 * (1.0 - 1.0 / one_in))),
        },
        y: Axis { title: "latency", spread: Spread::Logarithmic, write: units::nanoseconds },
        lines,
    }
    .svg()
}

/// What searches tried: offered rate and loss, by rate.
pub(super) fn tried<'a>(searches: impl Iterator<Item = &'a FindMax>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        searches.flat_map(|found| &found.points).map(|point| (point.offered, point.loss)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Loss by offered rate.
pub(super) fn loss_plot(lines: Vec<Line>) -> String {
    Plot {
        title: "loss by offered rate".to_owned(),
        x: Axis { title: "offered packets per second", spread: Spread::Linear, write: units::rate },
        y: Axis { title: "lost", spread: Spread::Linear, write: units::percent },
        lines,
    }
    .svg()
}

/// The names beside their colours.
pub(super) fn legend(names: impl Iterator<Item = String>) -> String {
    let keys: Vec<String> = names
        .enumerate()
        .map(|(number, name)| {
            format!("<span class=\"key c{}\"></span>{}", number % COLOURS, escape(&name))
        })
        .collect();
    format!("<p class=\"legend\">{}</p>", keys.join(" "))
}

fn name(outcome: &Outcome) -> String {
    let traffic = |run: &Traffic| {
        let TrafficSpec { shape, direction, size, .. } = run.spec;
        let over = run.transport.describe();
        format!("{shape:?}, {direction:?}, {} flows, {size} bytes, {over}", run.flows)
    };
    match outcome {
        Outcome::Traffic(run) => traffic(run),
        Outcome::FindMax(found) => format!("highest rate: {}", traffic(&found.confirmed)),
        Outcome::Requests(requests) => {
            format!("{}, {}", requests.mode, requests.transport.describe())
        }
        Outcome::Hostile(hostile) => format!("{}: a client beside it", hostile.variant),
        Outcome::Footprint(footprint) => footprint.process.clone(),
        Outcome::Compare(_) | Outcome::Lab(_) | Outcome::Programs(_) => String::new(),
    }
}

/// The runs as a table; other results have one of their own.
fn rows(outcomes: &[&Outcome]) -> String {
    let heading = ["run", "per second", "lost or failed", "p50", "p99", "busiest core"];
    let rows: Vec<Vec<Cell>> = outcomes.iter().filter_map(|outcome| row(outcome)).collect();
    if rows.is_empty() { String::new() } else { table(&heading, rows) }
}

fn row(outcome: &Outcome) -> Option<Vec<Cell>> {
    let traffic = |run: &Traffic| (run.delivered_per_second(), run.loss());
    let requests = |run: &Requests| {
        let succeeded = run.succeeded as f64;
        (succeeded / run.duration.as_secs_f64(), 1.0 - succeeded / run.started.max(1) as f64)
    };
    let ((per_second, lost), cores) = match outcome {
        Outcome::Traffic(run) => (traffic(run), &run.used.cores),
        Outcome::FindMax(found) => (traffic(&found.confirmed), &found.confirmed.used.cores),
        Outcome::Requests(run) => (requests(run), &run.used.cores),
        Outcome::Hostile(hostile) => (requests(&hostile.probe), &hostile.used.cores),
        Outcome::Footprint(_) | Outcome::Compare(_) | Outcome::Lab(_) | Outcome::Programs(_) => {
            return None;
        }
    };
    let latency = latency(outcome);
    let time = |of: fn(Latency) -> u64| {
        latency.map_or_else(|| "—".to_owned(), |latency| units::nanoseconds(of(latency) as f64))
    };
    let busiest = cores.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let busiest = busiest.map(|core| format!("{} ({})", core.role, units::percent(core.busy)));
    Some(vec![
        Cell::Words(name(outcome)),
        Cell::Figure(units::rate(per_second)),
        Cell::Figure(units::percent(lost)),
        Cell::Figure(time(|latency| latency.p50)),
        Cell::Figure(time(|latency| latency.p99)),
        Cell::Words(busiest.unwrap_or_default()),
    ])
}
