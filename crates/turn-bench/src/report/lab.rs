//! Bare relays side by side.

use super::bars::{Bar, Bars};
use super::page::{COLOURS, Cell, Section, cards, table};
use super::units;
use crate::outcome::Lab;

/// What each strategy delivered, and what a packet cost it.
pub(super) fn section(lab: &Lab) -> Section {
    let bars = lab.rows.iter().enumerate().map(|(number, row)| {
        let range = row
            .rounds
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let median = row.delivered_per_second(lab);
        Bar { name: row.strategy.clone(), colour: number % COLOURS, median, range }
    });
    let delivered = Bars {
        title: "delivered packets per second".to_owned(),
        write: units::rate,
        bars: bars.collect(),
        line: None,
    };
    let rows = lab.rows.iter().map(|row| {
        vec![
            Cell::Words(row.strategy.clone()),
            Cell::Figure(units::rate(row.delivered_per_second(lab))),
            Cell::Figure(units::nanoseconds(row.nanos_per_packet(lab))),
            Cell::Figure(units::percent(row.loss())),
            Cell::Words(row.limit.to_string()),
        ]
    });
    let heading = ["strategy", "delivered per second", "relay per packet", "lost", "limit"];
    let skipped: Vec<String> = lab
        .skipped
        .iter()
        .map(|(strategy, why)| format!("{strategy} was skipped: {why}."))
        .collect();
    Section {
        title: format!(
            "Bare relays: {:?}, {} sessions, {} bytes",
            lab.shape, lab.sessions, lab.size
        ),
        lead: format!(
            "No TURN, only forwarding, over {}. Whiskers are the lowest and the highest round. {}",
            lab.place,
            skipped.join(" "),
        ),
        body: cards([("Delivered".to_owned(), delivered.svg())]) + &table(&heading, rows),
    }
}
