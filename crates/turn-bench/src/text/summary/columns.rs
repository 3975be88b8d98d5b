//! The columns of the summary, and the measures that they show.

use super::words::Kind;
use crate::outcome::{ComparedCell, Measure};

/// A column: its heading, and the names of its measure.
pub(super) struct Column {
    /// Heading of the table.
    pub(super) heading: &'static str,
    /// Names of packets and of allocations; the names of older results follow.
    pub(super) names: &'static [&'static str],
    /// Its name in a sentence.
    pub(super) words: &'static str,
}

/// Columns of packets and of allocations. The first has units of its own, the others are times.
const COLUMNS: [Column; 6] = [
    Column {
        heading: "throughput at ≤ 1 % loss",
        names: &[
            "throughput at ≤ 1 % loss",
            "throughput at ≤ 0.1 % loss",
            "allocations, at most",
            "delivered at most",
            "allocations at most",
        ],
        words: "throughput",
    },
    Column {
        heading: "core time each, at most",
        names: &["server cores per packet, at most", "server cores per allocation, at most"],
        words: "core time",
    },
    Column {
        heading: "core time each, fixed load",
        names: &[
            "server cores per packet, at a fixed load",
            "server cores per allocation, at a fixed load",
            "server cores per packet, at the common rate",
            "server cores per allocation, at the common rate",
        ],
        words: "core time at the fixed load",
    },
    Column {
        heading: "p50",
        names: &[
            "latency p50",
            "allocation latency p50",
            "latency, half of the packets",
            "time to an allocation, half of them",
        ],
        words: "median latency",
    },
    Column {
        heading: "p99",
        names: &[
            "latency p99",
            "allocation latency p99",
            "latency, 99 of 100",
            "time to an allocation, 99 of 100",
        ],
        words: "p99",
    },
    Column { heading: "p99.9", names: &["latency p99.9", "latency, 999 of 1000"], words: "p99.9" },
];

/// Columns of memory.
const MEMORY: [Column; 4] = [
    Column {
        heading: "each, the process",
        names: &["memory of an idle allocation"],
        words: "memory of the process for each allocation",
    },
    Column {
        heading: "each, the kernel",
        names: &["kernel memory of an idle allocation"],
        words: "kernel memory for each",
    },
    Column {
        heading: "with 100 allocations, the process",
        names: &["memory with 100 allocations"],
        words: "memory of the process with 100",
    },
    Column {
        heading: "with 100 allocations, the kernel and its BPF maps",
        names: &["kernel memory with 100 allocations"],
        words: "kernel memory with 100",
    },
];

/// The columns of a kind of load.
pub(super) const fn columns(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::Packets | Kind::Allocations => &COLUMNS,
        Kind::Memory => &MEMORY,
    }
}

/// Place of the highest rate, or of the memory.
pub(super) const MOST: usize = 0;

/// Place of the time of a core at the highest rate.
pub(super) const CORE: usize = 1;

impl Column {
    /// Its measure of a load; `None` where the load has none.
    pub(super) fn of<'a>(&self, cell: &'a ComparedCell) -> Option<&'a Measure> {
        let named =
            |name: &&str| cell.measures.iter().find(|measure| measure.name.as_str() == *name);
        self.names.iter().find_map(named)
    }
}
