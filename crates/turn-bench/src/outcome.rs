//! Results: plain data, written as JSON, one per line, and read by `report`.

mod compare;
mod correction;
mod footprint;
mod lab;
mod programs;
mod requests;
mod statistics;
mod traffic;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub(crate) use compare::BUSY;
pub use compare::{Compare, ComparedCell, ComparedServer, Machine, RawStep};
pub(crate) use correction::correct;
pub use footprint::{Footprint, ProcessMemory};
pub use lab::{Lab, LabLimit, LabRow};
pub use programs::{ProgramRow, Programs};
pub use requests::{AttackedCall, Hostile, Requests};
pub use statistics::{Better, Measure, Ratio, Spread, Verdict, measure, median, spread};
pub(crate) use statistics::{CHANCE_MAX, ratio};
pub use traffic::{FindMax, Limit, Point, Traffic};

/// One line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// One run of packets.
    Traffic(Traffic),
    /// The highest rate that was delivered.
    FindMax(FindMax),
    /// Requests answered per second: allocations, bindings.
    Requests(Requests),
    /// A run of an attack.
    Hostile(Hostile),
    /// Memory and descriptors of idle allocations.
    Footprint(Footprint),
    /// Servers compared with each other.
    Compare(Compare),
    /// Bare relays side by side.
    Lab(Lab),
    /// Time of the BPF programs of the kernel path.
    Programs(Programs),
}

impl Outcome {
    /// The run of packets, if it is one.
    pub(crate) const fn traffic(&self) -> Option<&Traffic> {
        if let Self::Traffic(traffic) = self { Some(traffic) } else { None }
    }

    /// The search, if it is one.
    pub(crate) const fn find_max(&self) -> Option<&FindMax> {
        if let Self::FindMax(found) = self { Some(found) } else { None }
    }

    /// The run of requests, if it is one.
    pub(crate) const fn requests(&self) -> Option<&Requests> {
        if let Self::Requests(requests) = self { Some(requests) } else { None }
    }

    /// The comparison, if it is one.
    pub(crate) const fn compare(&self) -> Option<&Compare> {
        if let Self::Compare(compare) = self { Some(compare) } else { None }
    }

    /// The footprint, if it is one.
    pub(crate) const fn footprint(&self) -> Option<&Footprint> {
        if let Self::Footprint(footprint) = self { Some(footprint) } else { None }
    }
}

/// Percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
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

/// Utilisation of cores and of a process during the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Utilisation of each watched core.
    pub cores: Vec<CoreUse>,
    /// CPU time of the watched process; `None` without one.
    #[serde(default)]
    pub process: Option<Duration>,
}

/// Utilisation of a core by all programs and the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Role of the core: `server`, `client`, `peer`.
    pub role: String,
    /// Number of the core.
    pub core: usize,
    /// Busy share, 0 to 1, from the time left for a thread of lowest priority.
    pub busy: f64,
    /// Shares by `/proc/stat`: user, system, softirq, irq, steal, idle.
    pub stat: [f64; 6],
}

/// Share of `sent` that was not delivered, 0 to 1.
fn loss(sent: u64, delivered: u64) -> f64 {
    if sent == 0 { 0.0 } else { 1.0 - delivered.min(sent) as f64 / sent as f64 }
}
