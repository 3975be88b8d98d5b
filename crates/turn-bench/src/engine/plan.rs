//! The plan of a run, known to both ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::TrafficSpec;

/// The measured time, by the sender's monotonic clock in nanoseconds. Packets count by the time
/// they carry, so that sent and delivered packets are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Begin, inclusive.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
}

impl Window {
    /// Returns `true` for packets sent at this time that count.
    #[must_use]
    pub const fn contains(&self, sent: u64) -> bool {
        self.start <= sent && sent < self.end
    }
}

/// A run: packets, flows, and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of the run, in each of its packets.
    pub run: u32,
    /// The packets.
    pub spec: TrafficSpec,
    /// Number of flows, over all sending threads.
    pub flows: u32,
    /// Time of the first packet, by the sender's monotonic clock in nanoseconds: the warm-up ends
    /// with the begin of the window.
    pub begin: u64,
    /// The measured time.
    pub window: Window,
}

impl Plan {
    /// A run that begins at `begin`.
    #[must_use]
    pub fn new(run: u32, spec: &TrafficSpec, flows: u32, begin: u64) -> Self {
        let start = begin.saturating_add(nanos(spec.warm_up));
        let window = Window { start, end: start.saturating_add(nanos(spec.duration)) };
        Self { run, spec: *spec, flows, begin, window }
    }

    /// Packets of so many bursts of flows in turn, on average.
    pub(crate) fn packets(&self, bursts: u64) -> u64 {
        let flows = u64::from(self.flows.max(1));
        bursts.saturating_mul(self.spec.shape.round(self.flows)) / flows
    }
}

/// A duration in nanoseconds; 584 years at most.
#[must_use]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
