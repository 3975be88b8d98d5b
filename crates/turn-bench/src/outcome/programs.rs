//! Time of the BPF programs of the kernel path.

use serde::{Deserialize, Serialize};

use super::Spread;

/// Time of the programs of each hook, by kind of packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Programs {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Rounds, each with one turn of every row.
    pub rounds: u32,
    /// Test runs of each row in a round.
    pub runs: u32,
    /// One for each hook, kind of packet, families, flows, and with or without a limit.
    pub rows: Vec<ProgramRow>,
}

/// Time of one kind of packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// Hook of the program: `xdp`, `tc`.
    pub hook: String,
    /// Kind of packet, and its fate.
    pub what: String,
    /// Address families of client and peer.
    pub families: String,
    /// Flows that the kernel relays. Each packet is of the next of them.
    pub flows: u32,
    /// True if they have a limit of bandwidth, which was never reached.
    pub limited: bool,
    /// Packets of a test run.
    pub packets: u32,
    /// Nanoseconds per packet: for each round the median of its test runs.
    pub nanos: Vec<f64>,
    /// Spread of the rounds.
    pub spread: Spread,
}
