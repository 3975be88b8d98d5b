//! The result as Markdown.

use std::time::Duration;

use crate::attackers::Attacker;
use crate::operations::Operation;
use crate::phase::Measurements;

/// Quiet and attacked phases of one attacker.
pub(crate) struct Row {
    pub(crate) attacker: Attacker,
    pub(crate) quiet: Measurements,
    pub(crate) attacked: Measurements,
}

/// Prints ratios of attacked to quiet times, with failures, and below what was full.
pub(crate) fn print(rows: &[Row]) {
    let names = Operation::ALL.map(Operation::name).join(" | ");
    println!("| attacker | {names} | refused | server's processor |");
    println!("|---|{}", "---|".repeat(Operation::ALL.len() + 2));
    let mut quiet: [Vec<Duration>; Operation::ALL.len()] = Default::default();
    for row in rows {
        for (all, times) in quiet.iter_mut().zip(&row.quiet.times) {
            all.extend(times);
        }
    }
    let times = quiet.map(|mut times| {
        let [median, tail] = quantiles(&mut times).map(|time| time.as_secs_f64() * 1e3);
        format!("{median:.2} / {tail:.2} ms")
    });
    println!("| *quiet: median / 95th percentile* | {} | | |", times.join(" | "));
    for row in rows {
        let cells: Vec<String> = (0..Operation::ALL.len()).map(|index| cell(row, index)).collect();
        let [before, under] = [&row.quiet, &row.attacked].map(|phases| percent(&phases.busy));
        let (name, cells) = (row.attacker.name(), cells.join(" | "));
        let refused = row.attacked.refused();
        println!("| {name} | {cells} | {refused} | {before} → {under} % |");
    }
    for row in rows {
        println!("\n{}:", row.attacker.name());
        for (title, phases) in [("quiet", &row.quiet), ("attacked", &row.attacked)] {
            for ((index, error), count) in &phases.failures {
                println!("- {title}, {}: {count} × {error}", Operation::ALL[*index].name());
            }
        }
        for (metric, count) in &row.attacked.refusals {
            println!("- {metric} {count}");
        }
    }
}

/// Ratio of the medians and of the 95th percentiles, and failures under attack.
fn cell(row: &Row, index: usize) -> String {
    let [quiet, attacked] = [&row.quiet, &row.attacked]
        .map(|phases| quantiles(&mut phases.times[index].clone()).map(|time| time.as_secs_f64()));
    let failed = |phases: &Measurements| -> usize {
        phases.failures.iter().filter(|((of, _), _)| *of == index).map(|(_, count)| count).sum()
    };
    let ratio = |at: usize| attacked[at] / quiet[at].max(1e-9);
    let all = row.attacked.times[index].len() + failed(&row.attacked);
    let mut cell = format!("{:.1} / {:.1}", ratio(0), ratio(1));
    if failed(&row.attacked) > 0 {
        cell += &format!(", {} of {all} failed", failed(&row.attacked));
    }
    if failed(&row.quiet) > 0 {
        cell += &format!(" (quiet: {})", failed(&row.quiet));
    }
    cell
}

/// Median and 95th percentile.
fn quantiles(times: &mut [Duration]) -> [Duration; 2] {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().max(1) - 1));
    [50, 95].map(|part| at(part).copied().unwrap_or_default())
}

fn percent(shares: &[f64]) -> String {
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    format!("{:.0}", mean * 100.0)
}
