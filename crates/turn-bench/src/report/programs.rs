//! How long the kernel path's programs take for a packet.

use super::page::{Cell, Section, table};
use super::units;
use crate::outcome::Programs;

/// A row for each kind of packet, with as many flows as there were.
pub(super) fn section(programs: &Programs) -> Section {
    let rows = programs.rows.iter().map(|row| {
        let limit = if row.limited { "limited" } else { "no limit" };
        vec![
            Cell::Words(row.hook.clone()),
            Cell::Words(row.what.clone()),
            Cell::Words(row.families.clone()),
            Cell::Figure(row.flows.to_string()),
            Cell::Words(limit.to_owned()),
            Cell::Figure(units::nanoseconds(row.spread.median)),
            Cell::Figure(units::nanoseconds(row.spread.min)),
            Cell::Figure(units::nanoseconds(row.spread.max)),
        ]
    });
    let heading =
        ["hook", "packet", "families", "flows", "bandwidth", "median", "lowest", "highest"];
    Section {
        title: "Programs of the kernel path".to_owned(),
        lead: format!(
            "Time of the program alone for a packet, without drivers and links; {} rounds. {}, {}.",
            programs.rounds, programs.kernel, programs.cpu
        ),
        body: table(&heading, rows),
    }
}
