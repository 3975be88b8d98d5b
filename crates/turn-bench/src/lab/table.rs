//! What a lab measured, for people.

use std::fmt::Write as _;

use crate::outcome::{Lab, LabRow};

const HEAD: [&str; 10] = [
    "strategy",
    "sessions",
    "threads",
    "relay CPU",
    "Mbit/s",
    "kpps",
    "rounds",
    "ns/packet",
    "loss",
    "limit",
];

/// The table, with a line above it that says what was sent and where.
pub(super) fn of(lab: &Lab) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(lab.rows.iter().map(|row| cells(lab, row)));
    let mut widths = HEAD.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = format!(
        "{} bytes, {} in turn per session, at most {} on their way; over {}\n",
        lab.size,
        packets(lab.shape.burst()),
        lab.window,
        lab.place
    );
    for row in &rows {
        let mut line = String::new();
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            // Words begin on the left, numbers end on the right. Writing to a string cannot fail.
            let _ = if matches!(column, 0 | 6 | 9) {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for (strategy, reason) in &lab.skipped {
        let _ = writeln!(text, "{strategy}: skipped, {reason}");
    }
    text.trim_end().to_owned()
}

fn packets(count: u32) -> String {
    if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") }
}

fn cells(lab: &Lab, row: &LabRow) -> [String; HEAD.len()] {
    let busy: Vec<String> =
        row.relay_cores().map(|core| format!("{:.0} %", core.busy * 100.0)).collect();
    let rounds: Vec<String> =
        row.rounds.iter().map(|rate| format!("{:.0}", rate / 1000.0)).collect();
    let rate = row.delivered_per_second(lab);
    [
        row.strategy.clone(),
        lab.sessions.to_string(),
        lab.threads.to_string(),
        busy.join(" "),
        format!("{:.0}", rate * f64::from(lab.size) * 8.0 / 1e6),
        format!("{:.0}", rate / 1000.0),
        rounds.join(" "),
        format!("{:.0}", row.nanos_per_packet(lab)),
        format!("{:.2} %", row.loss() * 100.0),
        row.limit.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::Limit;
    use crate::outcome::CoreUse;
    use crate::traffic::Shape;

    #[test]
    fn a_lab_is_a_line_for_each_strategy_and_says_what_was_left_out() {
        let core = |role: &str, busy| CoreUse { role: role.into(), core: 1, busy, stat: [0.0; 6] };
        let row = LabRow {
            strategy: "per-thread".into(),
            sent: 500_000,
            refused: 0,
            delivered: 400_000,
            again: 0,
            damaged: 0,
            relay_drops: 0,
            client_drops: 0,
            latency: None,
            cores: vec![core("relay", 0.96), core("relay", 0.64), core("generator", 0.5)],
            limit: Limit::RelayCpu,
            rounds: vec![190_000.0, 200_000.0],
        };
        let lab = Lab {
            place: "the loopback (as asked)".into(),
            shape: Shape::Audio,
            size: 200,
            sessions: 100,
            threads: 2,
            window: 1024,
            duration: Duration::from_secs(2),
            rows: vec![row],
            skipped: vec![("io-uring".into(), "this kernel has no io_uring".into())],
        };
        let text = of(&lab);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(
            lines[0],
            [
                "200 bytes, 1 packet in turn per session, at most 1024 on their way; over the loopback (as asked)"
            ]
        );
        let cells: Vec<&str> = lines[2].iter().map(|cell| cell.trim()).collect();
        // 0.96 and 0.64 of two cores for 200,000 packets per second: 8 µs each.
        assert_eq!(
            cells,
            [
                "per-thread",
                "100",
                "2",
                "96 % 64 %",
                "320",
                "200",
                "190 200",
                "8000",
                "20.00 %",
                "relay CPU"
            ]
        );
        assert_eq!(lines[3], ["io-uring: skipped, this kernel has no io_uring"]);
    }
}
