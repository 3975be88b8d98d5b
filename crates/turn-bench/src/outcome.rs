//! What was measured, as it is printed, written as JSON and drawn by `report`.

mod compare;
mod find_max;
mod footprint;
mod hostile;
mod lab;
mod programs;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::traffic::{Backend, Direction, TrafficSpec, Transport};

pub use compare::{
    Better, Compare, ComparedCell, ComparedServer, Machine, Measure, Ratio, RawStep, Spread,
    Verdict,
};
pub use find_max::{FindMax, Limit, Point};
pub use footprint::{Footprint, ProcessMemory};
pub use hostile::{AttackedCall, Hostile};
pub use lab::{Lab, LabRow};
pub use programs::{ProgramRow, Programs};

/// One line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// One run of traffic.
    Traffic(Traffic),
    /// The highest rate of traffic that was delivered.
    FindMax(FindMax),
    /// Requests answered per second: allocations, bindings.
    Requests(Requests),
    /// What a server does about senders of rubbish.
    Hostile(Hostile),
    /// What allocations without traffic cost the server.
    Footprint(Footprint),
    /// Servers compared with each other.
    Compare(Compare),
    /// Bare relays side by side.
    Lab(Lab),
    /// How long the kernel path's programs take for a packet.
    Programs(Programs),
}

/// What became of one run of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// What was asked for.
    pub spec: TrafficSpec,
    /// What sent and received.
    pub backend: Backend,
    /// What carried the packets between clients and the server.
    #[serde(default)]
    pub transport: Transport,
    /// Flows, each of an allocation of its own.
    pub flows: u32,
    /// Packets that the kernel took within the measured time.
    pub sent: u64,
    /// Packets that the kernel would not take (no buffer, queue full), within the measured time. Over
    /// a stream: those that the connections would not take because the server did not read them.
    pub refused: u64,
    /// The part of the packets asked for, 0 to 1, that the sender left out because it was late: the
    /// machine that sends could not keep the rate. 0 where no rate was asked for.
    pub behind: f64,
    /// Those of `sent` that arrived, each once.
    pub delivered: u64,
    /// Those that arrived again.
    pub duplicates: u64,
    /// Those that arrived behind a later one of their flow.
    pub reordered: u64,
    /// Packets of the run whose header was not what was sent.
    pub damaged: u64,
    /// Packets that reached the benchmark's own sockets and found them full. The server did its work
    /// on them; they count as lost all the same.
    pub dropped: u64,
    /// From the sender's call to the receiver's, `None` when their clocks differ. For `Echo` there
    /// and back.
    pub latency: Option<Latency>,
    /// What was watched during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

impl Traffic {
    /// Packets delivered per second of the measured time.
    #[must_use]
    pub fn delivered_per_second(&self) -> f64 {
        self.delivered as f64 / self.spec.duration.as_secs_f64()
    }

    /// The part of the packets sent that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        loss(self.sent, self.delivered)
    }

    /// The part of the packets, 0 to 1, that clients had to send and their connections would not take,
    /// since earlier ones were still on their way to the server: backpressure. 0 over datagrams, and
    /// where clients do not send.
    #[must_use]
    pub fn held_back(&self) -> f64 {
        if !self.transport.is_stream() || self.spec.direction == Direction::PeerToClient {
            return 0.0;
        }
        loss(self.sent + self.refused, self.sent)
    }
}

/// Percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the packets took at most this.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// The percentiles of a histogram; `None` when it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
        })
    }
}

/// What became of a run of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// What was asked: `alloc`, `alloc without release`, `binding`.
    pub mode: String,
    /// What carried them.
    #[serde(default)]
    pub transport: Transport,
    /// Whole exchanges (an allocation with its challenge is one) begun in the measured time.
    pub started: u64,
    /// Those that ended as they should, to the last answer.
    pub succeeded: u64,
    /// Those that were refused or never answered, by what the server said.
    pub failed: Vec<(String, u64)>,
    /// Messages sent and received: over UDP datagrams.
    pub datagrams: (u64, u64),
    /// The measured time.
    pub duration: Duration,
    /// From the first request of an exchange to what it was for: the allocation, the answer to a
    /// Binding. Giving an allocation back is part of its exchange, and not of this.
    pub latency: Option<Latency>,
    /// What was watched during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

/// What was used of cores, and by a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// How busy each core that was watched was.
    pub cores: Vec<CoreUse>,
    /// How long the threads of the process that was watched ran; `None` where none was.
    #[serde(default)]
    pub process: Option<Duration>,
}

/// How busy a core was, whoever used it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// What runs there: `server`, `client`, `peer`.
    pub role: String,
    /// Its number.
    pub core: usize,
    /// The part of the time it was not idle, 0 to 1, by what was left for a thread that only takes
    /// what nobody wants.
    pub busy: f64,
    /// What `/proc/stat` says of the same time, parts of 1: user, system, softirq, irq, steal, idle.
    pub stat: [f64; 6],
}

fn loss(sent: u64, delivered: u64) -> f64 {
    if sent == 0 { 0.0 } else { 1.0 - delivered.min(sent) as f64 / sent as f64 }
}
