//! Runs of requests, and attacks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Latency, Traffic, Used};
use crate::traffic::Transport;

/// Result of a run of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Kind of exchange: `alloc`, `alloc without release`, `binding`.
    pub mode: String,
    /// Transport of the requests.
    #[serde(default)]
    pub transport: Transport,
    /// Whole exchanges (an allocation with its challenge is one) begun in the measured time.
    pub started: u64,
    /// Exchanges that succeeded to the last answer.
    pub succeeded: u64,
    /// Exchanges refused or unanswered, by reason.
    pub failed: Vec<(String, u64)>,
    /// Messages sent and received: over UDP datagrams.
    pub datagrams: (u64, u64),
    /// The measured time.
    pub duration: Duration,
    /// From the first request of an exchange to its purpose: the allocation, or the answer to a
    /// Binding. The release of an allocation is part of its exchange, and not of this.
    pub latency: Option<Latency>,
    /// Utilisation during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

/// Result of an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hostile {
    /// Kind of attack: `garbage`, `integrity`, `unauthenticated`, `spoofed`, `dtls`.
    pub variant: String,
    /// Datagrams that the kernel took within the measured time.
    pub sent: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Answers of the server that arrived here.
    pub answers: u64,
    /// Their payload bytes.
    pub answer_bytes: u64,
    /// A legitimate client at the same time: ten times a second an allocation and its release.
    pub probe: Requests,
    /// A relayed call before and during the attack, if there was one.
    #[serde(default)]
    pub call: Option<Box<AttackedCall>>,
    /// The measured time.
    pub duration: Duration,
    /// Utilisation during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

impl Hostile {
    /// Bytes that the server sent per byte received: the gain of a reflection attack.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        if self.sent_bytes == 0 { 0.0 } else { self.answer_bytes as f64 / self.sent_bytes as f64 }
    }
}

/// A relayed call before and during an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackedCall {
    /// Before the attack.
    pub quiet: Traffic,
    /// During the attack.
    pub attacked: Traffic,
}
