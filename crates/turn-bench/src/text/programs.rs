//! Time of the BPF programs, by kind of packet and number of flows.

use super::table;
use crate::outcome::{ProgramRow, Programs, Spread};

pub(super) fn programs(programs: &Programs) -> String {
    let Programs { kernel, cpu, rounds, runs, rows } = programs;
    let mut columns: Vec<(bool, u32)> = rows.iter().map(|row| (row.limited, row.flows)).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut heading: Vec<String> = ["hook", "packet", "families"].map(str::to_owned).into();
    heading.extend(columns.iter().map(|(limited, flows)| {
        format!("{flows} flows{}", if *limited { ", limited" } else { "" })
    }));
    let mut lines: Vec<[&str; 3]> = Vec::new();
    for row in rows {
        if !lines.contains(&name(row)) {
            lines.push(name(row));
        }
    }
    let lines = lines.into_iter().map(|line| {
        let value = |column: &(bool, u32)| {
            let found =
                rows.iter().find(|row| name(row) == line && (row.limited, row.flows) == *column);
            found.map_or_else(|| "–".to_owned(), |row| value(&row.spread))
        };
        line.map(str::to_owned).into_iter().chain(columns.iter().map(value)).collect()
    });
    format!(
        "{kernel}, {cpu}; rounds: {rounds}, each of {runs} test runs. Nanoseconds per packet: median of the \
         rounds (minimum–maximum; median absolute deviation), each the median of its runs.\n\n{}",
        table(heading, lines)
    )
}

fn name(row: &ProgramRow) -> [&str; 3] {
    [&row.hook, &row.what, &row.families]
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
        let text = programs(&Programs {
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
        });
        let cells = |line: &str| -> Vec<String> {
            line.split('|')
                .map(|cell| cell.trim().to_owned())
                .filter(|cell| !cell.is_empty())
                .collect()
        };
        let lines: Vec<_> = text.lines().skip(2).map(cells).collect();
        let expected = [
            ["xdp", "relayed", "IPv4-IPv4", "10 (9–12; 0)", "20 (19–22; 0)", "30 (29–32; 0)"],
            ["xdp", "passed", "IPv4-IPv4", "–", "5 (4–7; 0)", "–"],
        ];
        assert_eq!(lines[0][3..], ["2 flows", "1000 flows", "2 flows, limited"]);
        assert_eq!(lines[2..], expected);
    }
}
