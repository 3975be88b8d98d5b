//! The summary of comparisons: one table of all loads and servers, what is behind, and a sentence
//! of verdict for each load.

mod columns;
mod verdict;
mod words;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::compare::value;
use super::{table, units};
use crate::outcome::{Compare, ComparedCell, Measure, Outcome, correct};
use columns::{MOST, columns};
use words::Kind;

/// The summary of all comparisons among some results; empty without any.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let compares: Vec<&Compare> = outcomes.iter().filter_map(Outcome::compare).collect();
    if compares.is_empty() {
        return String::new();
    }
    // Packets first, then allocations, then memory, each in the order of the files.
    let mut cells: Vec<(&Compare, &ComparedCell)> =
        compares.iter().flat_map(|it| it.cells.iter().map(move |cell| (*it, cell))).collect();
    cells.sort_by_key(|(_, cell)| words::kind(cell));
    let mut judged: Vec<_> =
        cells.iter().map(|(compare, cell)| verdict::judge(compare, cell)).collect();
    // The conclusions of a load are drawn together: each is a question of its own.
    let mut tests = BTreeSet::new();
    for judged in &mut judged {
        let mut ratios: Vec<_> = judged.iter_mut().flat_map(verdict::Judged::ratios).collect();
        tests.insert(ratios.len());
        correct(&mut ratios);
    }
    let tests = tests.last().copied().unwrap_or_default();
    let (mut sentences, mut losses) = (String::new(), String::new());
    for ((compare, cell), judged) in cells.iter().zip(&judged).filter(|(_, it)| !it.is_empty()) {
        let (load, more) = words::load(compare.transport, cell);
        let more = if more.is_empty() { more } else { format!(" ({more})") };
        _ = write!(sentences, "- **{load}**{more}:{}", verdict::sentences(judged));
        if let Some(lost) = verdict::losses(judged) {
            _ = writeln!(losses, "- **{load}**{more}: {lost}.");
        }
    }
    let is_memory = |(_, cell): &&(_, &ComparedCell)| words::kind(cell) == Kind::Memory;
    let (memory, loads): (Vec<_>, Vec<_>) = cells.iter().partition(is_memory);
    let mut text = cell_table(Kind::Packets, &loads) + &cell_table(Kind::Memory, &memory);
    if !sentences.is_empty() {
        let losses = if losses.is_empty() {
            "Behind, beyond the noise: nothing.\n".to_owned()
        } else {
            format!("Behind, beyond the noise:\n\n{losses}")
        };
        _ = write!(text, "{losses}\nEach load:\n\n{sentences}\n{}\n\n", rule(tests));
    }
    text + &legend(&compares)
}

/// A table of loads with the same columns; empty without any.
fn cell_table(kind: Kind, cells: &[(&Compare, &ComparedCell)]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let of_columns = columns(kind).iter().map(|column| column.heading);
    let heading = ["load", "server"].into_iter().chain(of_columns).map(str::to_owned);
    let rows = cells.iter().flat_map(|(compare, cell)| cell_rows(compare, cell));
    format!("{}\n", table(heading.collect(), rows))
}

/// The rows of a load, one for each server.
fn cell_rows(compare: &Compare, cell: &ComparedCell) -> Vec<Vec<String>> {
    let (mut load, more) = words::load(compare.transport, cell);
    if !more.is_empty() {
        _ = write!(load, ": {more}");
    }
    if let Some(rate) = cell.common_rate {
        _ = write!(load, "; fixed load {}/s", units::scaled(f64::from(rate)));
    }
    let columns = columns(words::kind(cell));
    let most = columns.get(MOST).and_then(|column| column.of(cell));
    if most.is_some_and(|most| most.name.contains("0.1 %")) {
        load.push_str("; at ≤ 0.1 % loss");
    }
    let row = |(index, server): (usize, &crate::outcome::ComparedServer)| {
        let columns = columns.iter().map(|column| {
            let shown = column.of(cell).and_then(|measure| shown(cell, measure, index));
            shown.unwrap_or_else(|| "–".to_owned())
        });
        // The load stands in its first row.
        let first = if index == 0 { load.clone() } else { String::new() };
        [first, words::server_with_version(server)].into_iter().chain(columns).collect()
    };
    compare.servers.iter().enumerate().map(row).collect()
}

/// Median and median absolute deviation of a server.
fn shown(cell: &ComparedCell, measure: &Measure, server: usize) -> Option<String> {
    let spread = measure.spreads.get(server).copied().flatten()?;
    let mark = if cell.is_bound(measure, server) { "≥ " } else { "" };
    let of = |number| value(number, &measure.unit);
    let each = match (words::kind(cell), measure.unit.as_str()) {
        (Kind::Packets, "packets/s") => "/s",
        (Kind::Allocations, "per second") => " allocations/s",
        _ => "",
    };
    Some(format!("{mark}{}{each} ± {}", of(spread.median), of(spread.mad)))
}

/// The rule by which a difference counts.
fn rule(tests: usize) -> String {
    format!(
        "Ratios are medians of the ratios within a round. A difference counts if a paired t-test of their logarithms has p ≤ 0.05 \
         after Holm's correction for the tests of its load, of which there are up to {tests}; what is not told is not significant. \
         \"Perhaps behind\" is a loss that would count if it were the only test."
    )
}

/// The legend: marks, date, machine and versions, and whatever failed.
fn legend(compares: &[&Compare]) -> String {
    let rounds: BTreeSet<u32> = compares.iter().map(|compare| compare.rounds).collect();
    let rounds: Vec<_> = rounds.iter().map(u32::to_string).collect();
    let mut text = format!(
        "Medians of {} rounds ± median absolute deviation. ≥: a bound, since the server's core was less than 90 % busy in a round \
         or it delivered all that was sent. Core time is that of the server's whole core, kernel included, for each packet or \
         allocation. –: not measured. Memory of the process is its proportional set size, that of the kernel what it charges to the \
         server's control group: sockets, descriptors, BPF maps.\n\n",
        rounds.join(" or "),
    );
    let lines: Vec<_> = compares.iter().map(|compare| place(compare)).collect();
    unique(&mut text, lines);
    unique(&mut text, compares.iter().flat_map(|compare| versions(compare)).collect());
    let failures: usize = compares.iter().map(|compare| compare.failures.len()).sum();
    let refused: u32 =
        compares.iter().flat_map(|it| &it.cells).flat_map(|cell| &cell.refused).sum();
    for (count, what) in [
        (failures, "failed; the full tables tell which"),
        (refused as usize, "cannot be, and were refused"),
    ] {
        if count > 0 {
            let of =
                if what.starts_with("failed") { "measurements" } else { "readings of the meter" };
            _ = writeln!(text, "- {of} that {what}: {count}");
        }
    }
    text
}

/// Writes each line once, in order.
fn unique(text: &mut String, lines: Vec<String>) {
    let mut seen = BTreeSet::new();
    for line in lines {
        if seen.insert(line.clone()) {
            _ = writeln!(text, "- {line}");
        }
    }
}

/// Date and machine of a comparison.
fn place(compare: &Compare) -> String {
    let began = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(compare.began));
    // `Mon, 23 Nov 2026 21:05:00 GMT`
    let date = began.get(5..16).unwrap_or(&began);
    let machine = &compare.machine;
    let mut facts =
        vec![format!("{date}: {}, {}, {} cores", machine.kernel, machine.cpu, machine.cores)];
    facts.extend((machine.virtual_machine == Some(true)).then(|| "a virtual machine".to_owned()));
    facts
        .extend(machine.root.map(|root| (if root { "as root" } else { "not as root" }).to_owned()));
    facts.extend((!machine.link.is_empty()).then(|| format!("links: {}", machine.link)));
    facts.join(", ")
}

/// Versions of the servers, and their warnings.
fn versions(compare: &Compare) -> Vec<String> {
    let of = |server: &crate::outcome::ComparedServer| {
        let version = if server.version.is_empty() { "version unknown" } else { &server.version };
        // Results before 23 November 2026 have no warning; all are beside Debian's.
        let old = server.version.starts_with("4.6");
        let warning = match &server.warning {
            Some(warning) => format!(" (**{warning}**)"),
            None if server.name.starts_with("coturn") && old => " (**an old version**)".to_owned(),
            // Builds have told their commit since 23 November 2026.
            None if words::is_own(&server.name) && !version.contains('(') => {
                " (commit not recorded)".to_owned()
            }
            None => String::new(),
        };
        let options = match server.name.as_str() {
            "coturn-fastest" => ", with --multiplex-peer --udp-gso",
            "coturn" => ", with its defaults",
            _ => "",
        };
        format!("{}: {version}{warning}{options}", words::server(&server.name))
    };
    compare.servers.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
