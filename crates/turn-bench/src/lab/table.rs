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
    text
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
