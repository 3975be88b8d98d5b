//! One run as both ends know it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::TrafficSpec;

/// The measured time, by the sender's monotonic clock in nanoseconds. Packets count by the time
/// they carry, so that those sent and those delivered are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first moment that counts.
    pub start: u64,
    /// The first that counts no more.
    pub end: u64,
}

impl Window {
    /// Whether a packet sent at this time counts.
    #[must_use]
    pub const fn contains(&self, sent: u64) -> bool {
        self.start <= sent && sent < self.end
    }
}

/// What a run is: which packets, of how many flows, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number, in every packet of it.
    pub run: u32,
    /// Which packets.
    pub spec: TrafficSpec,
    /// How many flows, over all threads that send.
    pub flows: u32,
    /// When the first packet is sent, by the sender's monotonic clock in nanoseconds: the warm-up
    /// is from here to the window's start.
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
}

/// A duration in nanoseconds; 584 years at most.
#[must_use]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
