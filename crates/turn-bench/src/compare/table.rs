//! A comparison as a table in Markdown.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::cells::Cell;
use crate::outcome::{Better, Compare, ComparedCell, Measure, Ratio, Spread, Verdict};

/// The whole text.
pub(super) fn markdown(compare: &Compare) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, compare);
    text
}

fn write_all(out: &mut String, compare: &Compare) -> std::fmt::Result {
    let names: Vec<_> = compare.servers.iter().map(|server| server.name.as_str()).collect();
    let plural = if compare.rounds == 1 { "" } else { "s" };
    writeln!(out, "# {}, {} round{plural}\n", names.join(" and "), compare.rounds)?;
    facts(out, compare)?;
    writeln!(
        out,
        "Each value is the median of the rounds (smallest to largest; median distance from the \
         median). Each ratio is the median of the ratios within a round (smallest to largest).\n"
    )?;
    header(out, &names)?;
    for cell in &compare.cells {
        for measure in &cell.measures {
            row(out, cell, measure, &names)?;
        }
    }
    let notes = notes(compare);
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "- {note}"))
}

fn facts(out: &mut String, compare: &Compare) -> std::fmt::Result {
    let machine = &compare.machine;
    writeln!(out, "- {}, {}, {} cores", machine.kernel, machine.cpu, machine.cores)?;
    for (role, cores) in &machine.roles {
        let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
        writeln!(out, "- cores of the {role}: {}", cores.join(", "))?;
    }
    if compare.transport.has_connections() {
        let (over, by) = (compare.transport.describe(), compare.backend.name());
        writeln!(out, "- clients by sockets over {over}; the peer by {by}")?;
    }
    for server in &compare.servers {
        let version = if server.version.is_empty() { "version unknown" } else { &server.version };
        let program = server.command.first().map_or("", String::as_str);
        writeln!(out, "- {}: {version}; `{program}`", server.name)?;
    }
    writeln!(
        out,
        "- began {}, by `{}`\n",
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(compare.began)),
        compare.command.join(" ")
    )
}

fn header(out: &mut String, names: &[&str]) -> std::fmt::Result {
    let mut columns = vec!["cell".to_owned(), "measure".to_owned()];
    columns.extend(names.iter().map(|name| (*name).to_owned()));
    if let Some((first, others)) = names.split_first() {
        for other in others {
            columns.push(format!("{other} / {first}"));
            columns.push(String::from("verdict"));
        }
    }
    writeln!(out, "| {} |", columns.join(" | "))?;
    let lines: Vec<_> =
        columns.iter().enumerate().map(|(at, _)| if at < 2 { "---" } else { "---:" }).collect();
    writeln!(out, "| {} |", lines.join(" | "))
}

fn row(
    out: &mut String,
    cell: &ComparedCell,
    measure: &Measure,
    names: &[&str],
) -> std::fmt::Result {
    let rate = match cell.common_rate {
        Some(rate) if measure.name.contains("common rate") || measure.name.contains("latency") => {
            format!(" ({}/s)", scaled(f64::from(rate)))
        }
        Some(_) | None => String::new(),
    };
    write!(out, "| {} | {}{rate} |", cell.name, measure.name)?;
    for (server, spread) in measure.spreads.iter().enumerate() {
        let mark = if cell.is_bound(measure, server) { "≥ " } else { "" };
        let spread = spread.map_or_else(|| "–".to_owned(), |spread| value(&spread, &measure.unit));
        write!(out, " {mark}{spread} |")?;
    }
    for (ratio, name) in measure.ratios.iter().zip(names.iter().skip(1)) {
        match ratio {
            Some(ratio) => write!(
                out,
                " {:.2} ({:.2}–{:.2}) | {} |",
                ratio.median,
                ratio.min,
                ratio.max,
                verdict(name, ratio, measure.better)
            )?,
            None => write!(out, " – | |")?,
        }
    }
    writeln!(out)
}

/// What a ratio means for the server of this name, in words.
fn verdict(name: &str, ratio: &Ratio, better: Better) -> String {
    let direction = match (ratio.verdict, better) {
        (Verdict::Noise, _) => return "inside the noise".to_owned(),
        (Verdict::TooFewRounds, _) => return "too few rounds to tell".to_owned(),
        (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => "better",
        (Verdict::Higher, Better::Lower) | (Verdict::Lower, Better::Higher) => "worse",
        (Verdict::Higher, Better::Neither) => "more",
        (Verdict::Lower, Better::Neither) => "less",
    };
    format!("{name} {direction} (p = {:.3})", ratio.chance)
}

/// What the table does not show: what the generator can do alone, whose figures are bounds, what could
/// not be measured.
pub(crate) fn notes(compare: &Compare) -> Vec<String> {
    let mut notes = Vec::new();
    for cell in &compare.cells {
        if let Some(ceiling) = cell.ceiling {
            notes.push(format!(
                "{}: with a bare kernel forwarder in the server's place the same clients and peer \
                 deliver {}/s",
                cell.name,
                scaled(ceiling)
            ));
        }
        let bounds = compare.servers.iter().zip(&cell.generator_limited);
        for (server, rounds) in bounds.filter(|(_, rounds)| **rounds > 0) {
            notes.push(format!(
                "{}, {}: in {rounds} of {} rounds {}; it may be able to do more (≥)",
                cell.name,
                server.name,
                compare.rounds,
                limit(compare, cell)
            ));
        }
    }
    notes.extend(compare.failures.iter().cloned());
    notes
}

/// Why a figure is a bound.
fn limit(compare: &Compare, cell: &ComparedCell) -> &'static str {
    if cell.name == Cell::Allocations.to_string() {
        "the server's cores were not full"
    } else if compare.transport.is_stream() {
        "the server delivered all that could be sent, or its cores were not full"
    } else {
        "the server delivered all that could be sent"
    }
}

fn value(spread: &Spread, unit: &str) -> String {
    let of = |number: f64| match unit {
        "ns" => nanos(number),
        "bytes" => format!("{number:.0} B"),
        "%" => format!("{number:.2} %"),
        _ => scaled(number),
    };
    let Spread { median, min, max, mad } = *spread;
    if min.total_cmp(&max).is_eq() {
        return of(median);
    }
    format!("{} ({}–{}; {})", of(median), of(min), of(max), of(mad))
}

/// Three digits that count, and k or M.
fn scaled(number: f64) -> String {
    let (number, suffix) = match number {
        number if number >= 999_500.0 => (number / 1e6, " M"),
        number if number >= 999.5 => (number / 1e3, " k"),
        number => (number, ""),
    };
    format!("{}{suffix}", digits(number))
}

fn nanos(number: f64) -> String {
    let (number, unit) = match number {
        number if number >= 999_500.0 => (number / 1e6, "ms"),
        number if number >= 9_995.0 => (number / 1e3, "µs"),
        number => return format!("{number:.0} ns"),
    };
    format!("{} {unit}", digits(number))
}

fn digits(number: f64) -> String {
    let decimals = match number {
        number if number >= 99.95 => 0,
        number if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::statistics::measure;
    use crate::traffic::Transport;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let cases = [(0.0, "0.00"), (7.0, "7.00"), (999.4, "999"), (1000.0, "1.00 k")];
        for (number, text) in cases {
            assert_eq!(scaled(number), text);
        }
        assert_eq!(scaled(214_700.0), "215 k");
        assert_eq!(scaled(1_522_000.0), "1.52 M");
        assert_eq!(nanos(4540.4), "4540 ns");
        assert_eq!(nanos(18_230.0), "18.2 µs");
        assert_eq!(nanos(2_500_000.0), "2.50 ms");
    }

    #[test]
    fn the_table_has_a_row_for_each_measure_and_a_column_for_each_server() {
        let rounds = |values: [f64; 6]| values.map(Some).to_vec();
        let most = measure(
            "delivered at most",
            "packets/s",
            Better::Higher,
            vec![rounds([200e3; 6]), rounds([1e5, 1e5, 1e5, 1e5, 1e5, 9e4])],
        );
        let half = measure("latency", "ns", Better::Lower, vec![rounds([5.0; 6]), vec![None; 6]]);
        let mut compare = Compare::example(["turnpike", "coturn"], vec![most, half]);
        compare.cells[0].ceiling = Some(2_100_000.0);
        compare.cells[0].generator_limited = vec![2, 0];
        compare.failures.push("round 3, coturn: gone".into());
        let text = markdown(&compare);
        for part in [
            "# turnpike and coturn, 6 rounds",
            "- cores of the server: 1",
            "- began Thu, 01 Jan 1970 00:00:07 GMT, by `turnpike-bench compare`",
            "| cell | measure | turnpike | coturn | coturn / turnpike | verdict |",
            "| audio:1:c2p:200 | delivered at most | ≥ 200 k | 100 k (90.0 k–100 k; 0.00) | 0.50 (0.45–0.50) | coturn worse (p = 0.031) |",
            "| audio:1:c2p:200 | latency (50.0 k/s) | 5 ns | – | – | |",
            "in 2 of 6 rounds",
            "deliver 2.10 M/s",
            "- round 3, coturn: gone",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let columns: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(columns, [7; 4]);
        assert!(!text.contains("clients by"), "{text}");
        compare.transport = Transport::Tls;
        let text = markdown(&compare);
        for part in
            ["over TLS 1.3 (TLS_AES_128_GCM_SHA256, X25519); the peer by frames", "not full"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn the_verdict_says_which_way_is_better() {
        let ratio =
            |verdict| Ratio { median: 1.0, min: 1.0, max: 1.0, rounds: 6, chance: 0.031, verdict };
        assert!(verdict("b", &ratio(Verdict::Higher), Better::Lower).starts_with("b worse"));
        assert!(verdict("b", &ratio(Verdict::Higher), Better::Higher).starts_with("b better"));
        assert!(verdict("b", &ratio(Verdict::Lower), Better::Lower).starts_with("b better"));
        assert_eq!(verdict("b", &ratio(Verdict::Noise), Better::Lower), "inside the noise");
        assert_eq!(
            verdict("b", &ratio(Verdict::TooFewRounds), Better::Lower),
            "too few rounds to tell"
        );
    }
}
