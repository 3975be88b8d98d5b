//! Bare relays side by side.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CoreUse, Latency, loss};
use crate::traffic::Shape;

/// Packets delivered by bare relays under the same load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// Network: a link between network namespaces, or the loopback with the reason.
    pub place: String,
    /// Order in which sessions take turns.
    pub shape: Shape,
    /// Payload bytes of each packet, without the session id.
    pub size: u16,
    /// Sessions, each with a client and a peer of its own.
    pub sessions: u32,
    /// Threads of the relay, each on a core of its own.
    pub threads: u32,
    /// Packets in flight, at most.
    pub window: u32,
    /// The measured time of each run.
    pub duration: Duration,
    /// One for each strategy.
    pub rows: Vec<LabRow>,
    /// Strategies that could not run, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// The median run of a strategy, by packets delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabRow {
    /// Name of the strategy, as on the command line.
    pub strategy: String,
    /// Packets that the kernel took from the peers within the measured time.
    pub sent: u64,
    /// Packets that it refused, from the peers or from the relay.
    pub refused: u64,
    /// Packets of `sent` that arrived at their client, without duplicates.
    pub delivered: u64,
    /// Duplicates, and packets too late to tell.
    pub again: u64,
    /// Packets that were changed, or came to another client.
    pub damaged: u64,
    /// Dropped by the relay's sockets within the measured time.
    pub relay_drops: u64,
    /// Dropped by the clients' sockets within the measured time.
    pub client_drops: u64,
    /// From the sender's call to the receiver's: with a relay that always has packets queued,
    /// little more than the size of the window.
    pub latency: Option<Latency>,
    /// Utilisation of the cores: roles `relay` and `generator`.
    pub cores: Vec<CoreUse>,
    /// Bottleneck.
    pub limit: LabLimit,
    /// Packets delivered per second in each round.
    pub rounds: Vec<f64>,
}

/// Bottleneck of a bare relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabLimit {
    /// The relay's cores were full.
    RelayCpu,
    /// The relay's sockets dropped packets while its cores had time.
    SocketBuffer,
    /// The clients' sockets dropped packets.
    Receiver,
    /// The generator's cores were full, and nothing was lost.
    Generator,
    /// Nothing was full: the window was too small.
    Window,
    /// Packets were lost, and not at a socket: in a queue between the devices.
    Link,
}

impl fmt::Display for LabLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RelayCpu => "relay CPU",
            Self::SocketBuffer => "socket buffer",
            Self::Receiver => "receiver",
            Self::Generator => "generator",
            Self::Window => "window",
            Self::Link => "link",
        })
    }
}

impl LabRow {
    /// A row without packets.
    pub(crate) fn new(strategy: &str, limit: LabLimit) -> Self {
        Self {
            strategy: strategy.to_owned(),
            sent: 0,
            refused: 0,
            delivered: 0,
            again: 0,
            damaged: 0,
            relay_drops: 0,
            client_drops: 0,
            latency: None,
            cores: Vec::new(),
            limit,
            rounds: Vec::new(),
        }
    }

    /// The relay's cores.
    pub fn relay_cores(&self) -> impl Iterator<Item = &CoreUse> {
        self.cores.iter().filter(|core| core.role == "relay")
    }

    /// Packets delivered per second of the measured time.
    #[must_use]
    pub fn delivered_per_second(&self, lab: &Lab) -> f64 {
        self.delivered as f64 / lab.duration.as_secs_f64()
    }

    /// Time of the relay's cores per packet delivered, in nanoseconds, the kernel's work included.
    /// 0 when nothing was delivered.
    #[must_use]
    pub fn nanos_per_packet(&self, lab: &Lab) -> f64 {
        let busy: f64 = self.relay_cores().map(|core| core.busy).sum();
        let rate = self.delivered_per_second(lab);
        if rate > 0.0 { busy * 1e9 / rate } else { 0.0 }
    }

    /// Share of the packets sent that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        loss(self.sent, self.delivered)
    }
}
