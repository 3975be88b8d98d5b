//! Counts of exchanges.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;

/// The longest latency that is told apart: longer than any exchange can take.
const LATENCY_MAX: Duration = Duration::from_secs(120);

/// Counts of exchanges that began within the measured time.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) started: u64,
    pub(super) succeeded: u64,
    pub(super) failed: BTreeMap<String, u64>,
    /// Datagrams sent and received within the measured time.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Nanoseconds.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self> {
        let max = u64::try_from(LATENCY_MAX.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            started: 0,
            succeeded: 0,
            failed: BTreeMap::new(),
            sent: 0,
            received: 0,
            latency: Histogram::new_with_bounds(1, max, 3).context("the latency histogram")?,
        })
    }

    pub(super) fn fail(&mut self, why: String, times: u64) {
        if times > 0 {
            *self.failed.entry(why).or_default() += times;
        }
    }

    pub(super) fn note_latency(&mut self, took: Duration) {
        self.latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn add(&mut self, other: Self) -> Result<()> {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.sent += other.sent;
        self.received += other.received;
        for (why, times) in other.failed {
            self.fail(why, times);
        }
        self.latency.add(&other.latency).context("the sum of latencies")
    }
}
