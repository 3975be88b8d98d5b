//! What idle allocations cost.

use super::page::{Cell, Section, table};
use super::units;
use crate::outcome::{Footprint, ProcessMemory};

/// Memory and descriptors of one allocation.
pub(super) fn section(footprint: &Footprint) -> Section {
    let part = |name: &str, of: fn(&ProcessMemory) -> u64, write: fn(f64) -> String| {
        vec![
            Cell::Words(name.to_owned()),
            Cell::Figure(write(of(&footprint.before) as f64)),
            Cell::Figure(write(of(&footprint.after) as f64)),
            Cell::Figure(write(footprint.per_allocation(of))),
        ]
    };
    let rows = [
        part("resident", |memory| memory.rss, units::bytes),
        part("proportional", |memory| memory.pss, units::bytes),
        part("anonymous", |memory| memory.anonymous, units::bytes),
        part("descriptors", |memory| memory.descriptors, units::round),
    ];
    let with = if footprint.channels { "a channel each" } else { "nothing in them" };
    Section {
        title: format!("Memory of {}", footprint.process),
        lead: format!("{} idle allocations with {with}.", footprint.allocations),
        body: table(&["", "before", "after", "per allocation"], rows),
    }
}
