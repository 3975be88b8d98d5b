//! A comparison as a Markdown table.

use std::time::{Duration, UNIX_EPOCH};

use super::{table, units};
use crate::outcome::{Better, Compare, ComparedCell, Measure, Ratio, Spread, Verdict};

pub(super) fn compare(compare: &Compare) -> String {
    let names: Vec<_> = compare.servers.iter().map(|server| server.name.as_str()).collect();
    let rows = compare
        .cells
        .iter()
        .flat_map(|cell| cell.measures.iter().map(|measure| row(cell, measure, &names)));
    let notes: String = notes(compare).iter().map(|note| format!("- {note}\n")).collect();
    format!(
        "# {}, {} round{}\n\n{}\n\
         Each value is the median of the rounds (minimum–maximum; median absolute deviation), each ratio \
         the median of the ratios within a round (minimum–maximum).\n\n{}\n{notes}",
        names.join(" and "),
        compare.rounds,
        if compare.rounds == 1 { "" } else { "s" },
        facts(compare),
        table(heading(&names), rows),
    )
}

/// The machine, the roles of its cores, the servers, and the command.
fn facts(compare: &Compare) -> String {
    let machine = &compare.machine;
    let mut facts = vec![format!("{}, {}, {} cores", machine.kernel, machine.cpu, machine.cores)];
    let place = match machine.virtual_machine {
        Some(true) => Some("a virtual machine"),
        Some(false) => Some("no virtual machine"),
        None => None,
    };
    let user = machine.root.map(|root| if root { "as root" } else { "not as root" });
    let link = (!machine.link.is_empty()).then(|| format!("links: {}", machine.link));
    let more: Vec<_> = [place, user, link.as_deref()].into_iter().flatten().collect();
    facts.extend((!more.is_empty()).then(|| more.join(", ")));
    facts.extend(machine.roles.iter().map(|(role, cores)| {
        let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
        format!("cores of the {role}: {}", cores.join(", "))
    }));
    if compare.transport.has_connections() {
        let (over, by) = (compare.transport.describe(), compare.backend.name());
        facts.push(format!("clients by sockets over {over}; the peer by {by}"));
    }
    facts.extend(compare.servers.iter().map(|server| {
        let version = if server.version.is_empty() { "version unknown" } else { &server.version };
        let program = server.command.first().map_or("", String::as_str);
        format!("{}: {version}; `{program}`", server.name)
    }));
    facts.push(format!(
        "began {}, by `{}`",
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(compare.began)),
        compare.command.join(" ")
    ));
    facts.iter().map(|fact| format!("- {fact}\n")).collect()
}

fn heading(names: &[&str]) -> Vec<String> {
    let mut columns = vec!["cell".to_owned(), "measure".to_owned()];
    columns.extend(names.iter().map(|name| (*name).to_owned()));
    for other in names.iter().skip(1) {
        columns.extend([format!("{other} / {}", names[0]), "verdict".to_owned()]);
    }
    columns
}

fn row(cell: &ComparedCell, measure: &Measure, names: &[&str]) -> Vec<String> {
    // Also by the names of older results.
    let loads = ["fixed", "common rate", "latency", "time to"];
    let at_fixed_load = loads.iter().any(|part| measure.name.contains(part));
    let rate = match cell.common_rate {
        Some(rate) if at_fixed_load => format!(" ({}/s)", units::scaled(f64::from(rate))),
        Some(_) | None => String::new(),
    };
    let mut row = vec![cell.name.clone(), format!("{}{rate}", measure.name)];
    row.extend(measure.spreads.iter().enumerate().map(|(server, of_server)| {
        let mark = if cell.is_bound(measure, server) { "≥ " } else { "" };
        let shown =
            of_server.map_or_else(|| "–".to_owned(), |of_server| spread(&of_server, &measure.unit));
        format!("{mark}{shown}")
    }));
    for (ratio, name) in measure.ratios.iter().zip(names.iter().skip(1)) {
        row.extend(match ratio {
            Some(ratio) => [
                format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.min, ratio.max),
                verdict(name, ratio, measure.better),
            ],
            None => ["–".to_owned(), String::new()],
        });
    }
    row
}

fn verdict(name: &str, ratio: &Ratio, better: Better) -> String {
    let Some(chance) = ratio.corrected else { return String::new() };
    let direction = match (ratio.verdict, better) {
        (Verdict::Noise, _) => return "not significant".to_owned(),
        (Verdict::TooFewRounds, _) => return "too few rounds".to_owned(),
        (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => "better",
        (Verdict::Higher, Better::Lower) | (Verdict::Lower, Better::Higher) => "worse",
        (Verdict::Higher | Verdict::Lower, Better::Neither) => return String::new(),
    };
    format!("{name} {direction} (p = {chance:.3})")
}

/// Limits of the load tool, lower bounds, and failures.
fn notes(compare: &Compare) -> Vec<String> {
    let warned =
        compare.servers.iter().filter_map(|server| Some((server, server.warning.as_ref()?)));
    let mut notes: Vec<_> =
        warned.map(|(server, warning)| format!("{}: **{warning}**", server.name)).collect();
    for cell in &compare.cells {
        notes.extend(cell.ceiling.map(|ceiling| {
            format!(
                "{}: with a bare kernel forwarder in place of the server the same clients and peer \
                 deliver {}/s",
                cell.name,
                units::scaled(ceiling)
            )
        }));
        let refused = compare.servers.iter().zip(&cell.refused).filter(|(_, count)| **count > 0);
        notes.extend(refused.map(|(server, count)| {
            let plural = if *count == 1 { "" } else { "s" };
            format!("{}, {}: {count} reading{plural} of the meter refused", cell.name, server.name)
        }));
        let limit = if cell.name == "alloc" {
            "the server's cores were not full"
        } else {
            "the server delivered the whole offered load, or its cores were not full"
        };
        let rounds = (0..).map(|server| cell.bounded_rounds(server));
        let bounds = compare.servers.iter().zip(rounds);
        notes.extend(bounds.filter(|(_, rounds)| *rounds > 0).map(|(server, rounds)| {
            format!(
                "{}, {}: in {rounds} of {} rounds {limit}; the value is a lower bound (≥), and the time of the \
                 server's cores per item decides",
                cell.name, server.name, compare.rounds,
            )
        }));
    }
    notes.extend(significance(compare));
    notes.extend(compare.failures.iter().cloned());
    notes
}

/// A line about the tests of the table: their number, and what they are.
fn significance(compare: &Compare) -> Option<String> {
    let measures = compare.cells.iter().flat_map(|cell| &cell.measures);
    let ratios = measures.flat_map(|measure| measure.ratios.iter().flatten());
    let tests = ratios.filter(|ratio| ratio.corrected.is_some()).count();
    (tests > 1).then(|| {
        format!(
            "{tests} differences were tested together: paired t-tests of logarithms, p = 0.05 with Holm's correction"
        )
    })
}

/// A number with its unit.
pub(super) fn value(number: f64, unit: &str) -> String {
    match unit {
        "ns" => units::nanos(number),
        "bytes" => units::bytes(number),
        "%" => format!("{number:.2} %"),
        _ => units::scaled(number),
    }
}

/// A median with its spread.
fn spread(spread: &Spread, unit: &str) -> String {
    let of = |number: f64| value(number, unit);
    let Spread { median, min, max, mad } = *spread;
    if min.total_cmp(&max).is_eq() {
        return of(median);
    }
    format!("{} ({}–{}; {})", of(median), of(min), of(max), of(mad))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::measure;
    use crate::traffic::Transport;

    #[test]
    fn the_table_has_a_row_for_each_measure_and_a_column_for_each_server() {
        let rounds = |values: [f64; 6]| values.map(Some).to_vec();
        let values = vec![rounds([200e3; 6]), rounds([1e5, 1e5, 1e5, 1e5, 1e5, 9e4])];
        let most = measure("throughput", "packets/s", Better::Higher, values);
        let half = measure("latency", "ns", Better::Lower, vec![rounds([5.0; 6]), vec![None; 6]]);
        let mut example = Compare::example(["turnpike", "coturn"], vec![most, half]);
        example.cells[0].ceiling = Some(2_100_000.0);
        example.cells[0].generator_limited = vec![2, 0];
        example.cells[0].refused = vec![0, 2];
        example.failures.push("round 3, coturn: gone".into());
        example.correct();
        let text = compare(&example);
        let words: Vec<_> = text.split_whitespace().collect();
        let one_line = words.join(" ");
        for part in [
            "# turnpike and coturn, 6 rounds",
            "- cores of the server: 1",
            "- began Thu, 01 Jan 1970 00:00:07 GMT, by `turnpike-bench compare`",
            "| cell | measure | turnpike | coturn | coturn / turnpike | verdict |",
            "| audio:1:c2p:200 | throughput | ≥ 200 k | 100 k (90.0 k–100 k; 0.00) | 0.50 (0.45–0.50) | coturn worse (p = 0.000) |",
            "| audio:1:c2p:200 | latency (50.0 k/s) | 5 ns | – | – | |",
            "in 2 of 6 rounds",
            "coturn: 2 readings of the meter refused",
            "deliver 2.10 M/s",
            "- round 3, coturn: gone",
        ] {
            assert!(one_line.contains(part), "{part}\n{text}");
        }
        let columns = text.lines().filter(|line| line.starts_with('|'));
        assert!(columns.clone().all(|line| line.matches('|').count() == 7), "{text}");
        assert!(!text.contains("clients by"), "{text}");
        example.transport = Transport::Tls;
        let text = compare(&example);
        assert!(text.contains("over TLS 1.3 (TLS_AES_128_GCM_SHA256, X25519); the peer by frames"));
        assert!(text.contains("not full"), "{text}");
    }

    #[test]
    fn cores_with_time_left_make_a_lower_bound() {
        let rounds = |value: f64| vec![Some(value); 6];
        let most =
            measure("throughput", "packets/s", Better::Higher, vec![rounds(2e5), rounds(1e5)]);
        let busy = vec![rounds(90.0), [rounds(99.0)[..5].to_vec(), vec![Some(89.9)]].concat()];
        let busy = measure("server cores busy, at most", "%", Better::Neither, busy);
        let example = Compare::example(["turnpike", "coturn"], vec![most, busy]);
        let text = compare(&example);
        assert!(text.contains("| 200 k") && text.contains("| ≥ 100 k"), "{text}");
        assert!(text.contains("coturn: in 1 of 6 rounds"), "{text}");
    }

    #[test]
    fn the_verdict_depends_on_the_better_direction() {
        let ratio = |verdict| Ratio {
            median: 1.0,
            min: 1.0,
            max: 1.0,
            rounds: 6,
            chance: 0.01,
            corrected: Some(0.031),
            verdict,
        };
        let verdict = |of, better| verdict("b", &ratio(of), better);
        assert_eq!(verdict(Verdict::Higher, Better::Lower), "b worse (p = 0.031)");
        assert_eq!(verdict(Verdict::Higher, Better::Higher), "b better (p = 0.031)");
        assert_eq!(verdict(Verdict::Lower, Better::Lower), "b better (p = 0.031)");
        assert_eq!(verdict(Verdict::Noise, Better::Lower), "not significant");
        assert_eq!(verdict(Verdict::TooFewRounds, Better::Lower), "too few rounds");
    }
}
