//! What the programs took, as tables in Markdown.

use std::fmt::Write as _;

use crate::outcome::{ProgramRow, Programs, Spread};

/// A table of what was relayed, and one of what passed.
pub(super) fn markdown(programs: &Programs) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, programs);
    text.trim_end().to_owned()
}

fn write_all(out: &mut String, programs: &Programs) -> std::fmt::Result {
    let Programs { kernel, cpu, rounds, runs, rows } = programs;
    writeln!(
        out,
        "{kernel}, {cpu}; {rounds} rounds of {runs} test runs each. Nanoseconds per packet: the \
         median of the rounds (smallest to largest; median distance from the median), of each \
         round the median of its runs.\n"
    )?;
    let mut columns: Vec<(bool, u32)> = Vec::new();
    for row in rows {
        if !columns.contains(&(row.limited, row.flows)) {
            columns.push((row.limited, row.flows));
        }
    }
    columns.sort_unstable();
    write!(out, "| hook | packet | families |")?;
    for (limited, flows) in &columns {
        write!(out, " {flows} flows{} |", if *limited { ", limited" } else { "" })?;
    }
    writeln!(out, "\n| --- | --- | --- |{}", " ---: |".repeat(columns.len()))?;
    let mut lines: Vec<&ProgramRow> = Vec::new();
    for row in rows {
        if !lines.iter().any(|line| name(line) == name(row)) {
            lines.push(row);
        }
    }
    for line in lines {
        let (hook, what, families) = name(line);
        write!(out, "| {hook} | {what} | {families} |")?;
        for column in &columns {
            let found = rows
                .iter()
                .find(|row| name(row) == name(line) && (row.limited, row.flows) == *column);
            write!(out, " {} |", found.map_or_else(|| "–".to_owned(), |row| value(&row.spread)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn name(row: &ProgramRow) -> (&str, &str, &str) {
    (&row.hook, &row.what, &row.families)
}

fn value(spread: &Spread) -> String {
    let Spread { median, min, max, mad } = spread;
    format!("{median:.0} ({min:.0}–{max:.0}; {mad:.0})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_values_under_their_flows() {
        let row = |what: &str, flows, limited, median| ProgramRow {
            hook: "xdp".into(),
            what: what.into(),
            families: "IPv4-IPv4".into(),
            flows,
            limited,
            packets: 200,
            nanos: vec![median],
            spread: Spread { median, min: median - 1.0, max: median + 2.0, mad: 0.5 },
        };
        let programs = Programs {
            kernel: "Linux 6".into(),
            cpu: "one".into(),
            rounds: 1,
            runs: 1,
            rows: vec![
                row("relayed", 2, true, 30.0),
                row("relayed", 1000, false, 20.0),
                row("relayed", 2, false, 10.0),
                row("passed", 1000, false, 5.0),
            ],
        };
        let text = markdown(&programs);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| hook | packet | families | 2 flows | 1000 flows | 2 flows, limited |",
                "| --- | --- | --- | ---: | ---: | ---: |",
                "| xdp | relayed | IPv4-IPv4 | 10 (9–12; 0) | 20 (19–22; 0) | 30 (29–32; 0) |",
                "| xdp | passed | IPv4-IPv4 | – | 5 (4–7; 0) | – |",
            ]
        );
    }
}
