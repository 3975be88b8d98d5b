//! Bare relays side by side.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CoreUse, Latency, loss};
use crate::lab::Limit;
use crate::traffic::Shape;

/// What bare relays delivered, all under the same load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// Over what: a link between network namespaces, or the loopback and why.
    pub place: String,
    /// In what order sessions took turns.
    pub shape: Shape,
    /// Payload bytes of each packet, without the session id.
    pub size: u16,
    /// Sessions, each with a client and a peer of its own.
    pub sessions: u32,
    /// Threads of the relay, each on a core of its own.
    pub threads: u32,
    /// Packets on their way at once, at most.
    pub window: u32,
    /// The measured time of each run.
    pub duration: Duration,
    /// One for each strategy.
    pub rows: Vec<LabRow>,
    /// Strategies that could not run, and why.
    pub skipped: Vec<(String, String)>,
}

/// One strategy: of its runs the one in the middle, by what was delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabRow {
    /// Its name, as it is written on the command line.
    pub strategy: String,
    /// Packets that the kernel took from the peers within the measured time.
    pub sent: u64,
    /// Packets that it would not take, from the peers or from the relay.
    pub refused: u64,
    /// Those of `sent` that arrived at their client, each once.
    pub delivered: u64,
    /// Those that arrived again, or too late to know.
    pub again: u64,
    /// Packets that were not what was sent, or came to another client.
    pub damaged: u64,
    /// Dropped by the relay's sockets within the measured time.
    pub relay_drops: u64,
    /// Dropped by the clients' sockets within the measured time.
    pub client_drops: u64,
    /// From the sender's call to the receiver's. With a relay that always has packets waiting, it
    /// is little more than how many were allowed to.
    pub latency: Option<Latency>,
    /// How busy the cores were: roles `relay` and `generator`.
    pub cores: Vec<CoreUse>,
    /// Why it was not more.
    pub limit: Limit,
    /// Packets delivered per second in each round.
    pub rounds: Vec<f64>,
}

impl LabRow {
    /// The relay's cores.
    pub fn relay_cores(&self) -> impl Iterator<Item = &CoreUse> {
        self.cores.iter().filter(|core| core.role == "relay")
    }

    /// Packets delivered per second of the measured time.
    #[must_use]
    pub fn delivered_per_second(&self, lab: &Lab) -> f64 {
        self.delivered as f64 / lab.duration.as_secs_f64()
    }

    /// Time of the relay's cores for each packet delivered, in nanoseconds: what the kernel does
    /// for the relay is in it. 0 when nothing was.
    #[must_use]
    pub fn nanos_per_packet(&self, lab: &Lab) -> f64 {
        let busy: f64 = self.relay_cores().map(|core| core.busy).sum();
        let rate = self.delivered_per_second(lab);
        if rate > 0.0 { busy * 1e9 / rate } else { 0.0 }
    }

    /// The part of the packets sent that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        loss(self.sent, self.delivered)
    }
}
