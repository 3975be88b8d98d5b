//! How long the kernel path's programs take for a packet.

use serde::{Deserialize, Serialize};

use super::Spread;

/// What the programs of each hook took, by what came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Programs {
    /// Name and release of the kernel.
    pub kernel: String,
    /// What the processor calls itself.
    pub cpu: String,
    /// Rounds, in which everything has its turn.
    pub rounds: u32,
    /// Test runs of each row in a round.
    pub runs: u32,
    /// One for each hook, kind of packet, families, flows, and with or without a limit.
    pub rows: Vec<ProgramRow>,
}

/// What one kind of packet took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// By which program: `xdp`, `tc`.
    pub hook: String,
    /// What came, and what became of it.
    pub what: String,
    /// Of which families, client and peer.
    pub families: String,
    /// Flows that the kernel relays. Each packet is of the next of them.
    pub flows: u32,
    /// Whether they have a limit of bandwidth, which was never reached.
    pub limited: bool,
    /// Packets of a test run.
    pub packets: u32,
    /// Nanoseconds per packet: of each round the median of its test runs.
    pub nanos: Vec<f64>,
    /// The same, over the rounds.
    pub spread: Spread,
}
