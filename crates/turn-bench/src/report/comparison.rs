//! A comparison: what it was, what each server reached, how they are to each other.

use std::collections::BTreeMap;

use super::bars::{Bar, Bars};
use super::page::{COLOURS, Cell, Section, cards, table};
use super::runs;
use super::units;
use super::{escape, plot};
use crate::compare::notes;
use crate::outcome::{Better, Compare, ComparedCell, Latency, Measure, Ratio, Verdict};

/// What `compare` calls the step at the rate that all servers are given alike.
const COMMON_RATE: &str = "common-rate";

/// The sections of one comparison.
pub(super) fn sections(compare: &Compare) -> Vec<Section> {
    vec![setting(compare), measures(compare), latencies(compare), maxima(compare), figures(compare)]
}

fn setting(compare: &Compare) -> Section {
    let machine = &compare.machine;
    let names: Vec<&str> = compare.servers.iter().map(|server| server.name.as_str()).collect();
    let roles: Vec<String> = machine
        .roles
        .iter()
        .map(|(role, cores)| {
            let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
            format!("{role} on core {}", cores.join(" and "))
        })
        .collect();
    let sent_by = if compare.transport.has_connections() {
        let (over, by) = (compare.transport.describe(), compare.backend.name());
        format!("sockets over {over}, the peer by {by}")
    } else {
        compare.backend.name().to_owned()
    };
    let servers = compare.servers.iter().map(|server| {
        [&server.name, &server.version, &server.command.join(" ")]
            .map(|text| Cell::Words(text.clone()))
            .into()
    });
    Section {
        title: names.join(" against "),
        lead: format!(
            "{} rounds that count, by {sent_by}, on {} ({}, {} cores: {}).",
            compare.rounds,
            machine.cpu,
            machine.kernel,
            machine.cores,
            roles.join(", "),
        ),
        body: format!(
            "<p><code>{}</code></p>{}",
            escape(&compare.command.join(" ")),
            table(&["server", "version", "command"], servers)
        ),
    }
}

/// Each quantity as bars, with the ratios below.
fn measures(compare: &Compare) -> Section {
    // By name, in the order of their first appearance.
    let mut order: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<(&ComparedCell, &Measure)>> = BTreeMap::new();
    for cell in &compare.cells {
        for measure in &cell.measures {
            let group = groups.entry(&measure.name).or_default();
            if group.is_empty() {
                order.push(&measure.name);
            }
            group.push((cell, measure));
        }
    }
    let pictures = order.iter().filter_map(|name| {
        let group = groups.get(name)?;
        Some((heading(group.first()?.1), values(compare, group) + &ratios(compare, group)))
    });
    Section {
        title: "Medians and their spread".to_owned(),
        lead: "Bars are medians of the rounds, whiskers the lowest and the highest round. Below, each server is divided by the first one round by round; the dashed line is equality.".to_owned(),
        body: runs::legend(compare.servers.iter().map(|server| server.name.clone())) + &cards(pictures),
    }
}

fn heading(measure: &Measure) -> String {
    let better = match measure.better {
        Better::Higher => " · higher is better",
        Better::Lower => " · lower is better",
        Better::Neither => "",
    };
    format!("{}, {}{better}", measure.name, measure.unit)
}

fn values(compare: &Compare, group: &[(&ComparedCell, &Measure)]) -> String {
    let mut bars = Vec::new();
    for (cell, measure) in group {
        for (server, spread) in measure.spreads.iter().enumerate() {
            if let Some(spread) = spread {
                let range = (spread.min, spread.max);
                let name = cell.name.clone();
                bars.push(Bar { name, colour: server % COLOURS, median: spread.median, range });
            }
        }
    }
    let Some((_, first)) = group.first() else { return String::new() };
    let title = format!("{} of {} servers", first.name, compare.servers.len());
    Bars { title, write: units::writer(&first.unit), bars, line: None }.svg()
}

fn ratios(compare: &Compare, group: &[(&ComparedCell, &Measure)]) -> String {
    let mut bars = Vec::new();
    for (cell, measure) in group {
        if measure.better == Better::Neither {
            continue;
        }
        for (other, ratio) in measure.ratios.iter().enumerate() {
            if let Some(ratio) = ratio {
                bars.push(Bar {
                    name: cell.name.clone(),
                    colour: (other + 1) % COLOURS,
                    median: ratio.median,
                    range: (ratio.min, ratio.max),
                });
            }
        }
    }
    if bars.is_empty() {
        return String::new();
    }
    let first = compare.servers.first().map_or("the first", |server| &server.name);
    let title = format!("ratios to {first}");
    let svg = Bars { title: title.clone(), write: units::ratio, bars, line: Some(1.0) }.svg();
    format!("<p class=\"soft\">{}</p>{svg}", escape(&title))
}

/// Latency percentiles at the common rate, for each cell.
fn latencies(compare: &Compare) -> Section {
    let pictures = compare.cells.iter().map(|cell| {
        let lines = compare.servers.iter().enumerate().filter_map(|(server, about)| {
            let latencies: Vec<Latency> = compare
                .raw
                .iter()
                .filter(|raw| {
                    raw.round > 0
                        && raw.server == server
                        && raw.cell == cell.name
                        && raw.step == COMMON_RATE
                })
                .filter_map(|raw| runs::latency(&raw.outcome))
                .collect();
            runs::percentiles(&about.name, server % COLOURS, &latencies)
        });
        let rate = cell.common_rate.map(|rate| format!(" at {}/s", units::rate(f64::from(rate))));
        (format!("{}{}", cell.name, rate.unwrap_or_default()), runs::latency_plot(lines.collect()))
    });
    Section {
        title: "Latency at the same rate".to_owned(),
        lead: "How long all but the slowest packets took, each point the median of the rounds."
            .to_owned(),
        body: cards(pictures),
    }
}

/// Loss by offered rate, for each cell.
fn maxima(compare: &Compare) -> Section {
    let pictures = compare.cells.iter().map(|cell| {
        let lines = compare.servers.iter().enumerate().map(|(server, about)| {
            let found = compare
                .raw
                .iter()
                .filter(|raw| raw.round > 0 && raw.server == server && raw.cell == cell.name)
                .filter_map(|raw| runs::search(&raw.outcome));
            plot::Line {
                name: about.name.clone(),
                joined: false,
                colour: server % COLOURS,
                points: runs::tried(found),
            }
        });
        (cell.name.clone(), runs::loss_plot(lines.collect()))
    });
    Section {
        title: "Loss by offered rate".to_owned(),
        lead: "Every rate that was tried in the search for the highest one, over all rounds."
            .to_owned(),
        body: cards(pictures),
    }
}

/// All of it as figures, with what they mean in words.
fn figures(compare: &Compare) -> Section {
    let mut heading = vec!["cell", "quantity"];
    heading.extend(compare.servers.iter().map(|server| server.name.as_str()));
    heading.push("difference");
    let rows = compare.cells.iter().flat_map(|cell| {
        cell.measures.iter().map(move |measure| {
            let write = units::writer(&measure.unit);
            let mut row = vec![Cell::Words(cell.name.clone()), Cell::Words(measure.name.clone())];
            row.extend(measure.spreads.iter().enumerate().map(|(server, spread)| {
                let mark = if cell.is_bound(measure, server) { "≥ " } else { "" };
                Cell::Figure(spread.map_or_else(
                    || "not measured".to_owned(),
                    |spread| format!("{mark}{} ± {}", write(spread.median), write(spread.mad)),
                ))
            }));
            let words: Vec<String> = measure.ratios.iter().flatten().map(verdict).collect();
            row.push(Cell::Words(words.join("; ")));
            row
        })
    });
    Section {
        title: "Figures".to_owned(),
        lead: "Median of the rounds ± median distance from it.".to_owned(),
        body: table(&heading, rows) + &list(&notes(compare)),
    }
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    format!("<ul>{items}</ul>")
}

fn verdict(ratio: &Ratio) -> String {
    let figures = format!(
        "{} ({} to {})",
        units::ratio(ratio.median),
        units::ratio(ratio.min),
        units::ratio(ratio.max)
    );
    match ratio.verdict {
        Verdict::Higher | Verdict::Lower => figures,
        Verdict::Noise => format!("{figures}: inside the noise"),
        Verdict::TooFewRounds => format!("{figures}: too few rounds to tell"),
    }
}
