//! Bare relays side by side.

use super::table;
use crate::outcome::{Lab, LabRow};

const HEADING: [&str; 10] = [
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

pub(super) fn lab(lab: &Lab) -> String {
    let skipped: String = lab
        .skipped
        .iter()
        .map(|(strategy, reason)| format!("\n{strategy}: skipped, {reason}"))
        .collect();
    format!(
        "{} bytes, bursts of {}, at most {} packets in flight; over {}\n\n{}{skipped}",
        lab.size,
        lab.shape.burst(),
        lab.window,
        lab.place,
        table(HEADING.map(str::to_owned).into(), lab.rows.iter().map(|row| cells(lab, row)))
    )
}

fn cells(lab: &Lab, row: &LabRow) -> Vec<String> {
    let busy: Vec<_> =
        row.relay_cores().map(|core| format!("{:.0} %", core.busy * 100.0)).collect();
    let rounds: Vec<_> = row.rounds.iter().map(|rate| format!("{:.0}", rate / 1000.0)).collect();
    let rate = row.delivered_per_second(lab);
    vec![
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
    use crate::outcome::{CoreUse, LabLimit};
    use crate::traffic::Shape;

    #[test]
    fn a_lab_is_a_line_for_each_strategy_and_names_those_skipped() {
        let core = |role: &str, busy| CoreUse { role: role.into(), core: 1, busy, stat: [0.0; 6] };
        let row = LabRow {
            delivered: 400_000,
            sent: 500_000,
            cores: vec![core("relay", 0.96), core("relay", 0.64), core("generator", 0.5)],
            rounds: vec![190_000.0, 200_000.0],
            ..LabRow::new("per-thread", LabLimit::RelayCpu)
        };
        let text = lab(&Lab {
            place: "the loopback (as asked)".into(),
            shape: Shape::Audio,
            size: 200,
            sessions: 100,
            threads: 2,
            window: 1024,
            duration: Duration::from_secs(2),
            rows: vec![row],
            skipped: vec![("io-uring".into(), "this kernel has no io_uring".into())],
        });
        let line = text.lines().nth(4).unwrap();
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        // 0.96 and 0.64 of two cores for 200,000 packets per second: 8 µs each.
        let expected = [
            "per-thread",
            "100",
            "2",
            "96 % 64 %",
            "320",
            "200",
            "190 200",
            "8000",
            "20.00 %",
            "relay CPU",
        ];
        assert_eq!(cells, expected);
        assert!(text.ends_with("\nio-uring: skipped, this kernel has no io_uring"), "{text}");
    }
}
