//! What a server does about senders of rubbish.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Requests, Traffic, Used};

/// What became of a run of hostile traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hostile {
    /// What was sent: `garbage`, `integrity`, `unauthenticated`, `spoofed`, `dtls`.
    pub variant: String,
    /// Datagrams that the kernel took within the measured time.
    pub sent: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Datagrams that the kernel would not take.
    pub refused: u64,
    /// Datagrams that the server sent back, as far as they came here.
    pub answers: u64,
    /// Their payload bytes.
    pub answer_bytes: u64,
    /// A well-behaved client at the same time: an allocation, made and given back, ten times a
    /// second.
    pub probe: Requests,
    /// A relayed call meanwhile, if there was one.
    #[serde(default)]
    pub call: Option<Box<AttackedCall>>,
    /// The measured time.
    pub duration: Duration,
    /// What was watched during the measured time.
    #[serde(flatten)]
    pub used: Used,
}

impl Hostile {
    /// Bytes that the server sent for each byte it got: what a forger gains by it.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        if self.sent_bytes == 0 { 0.0 } else { self.answer_bytes as f64 / self.sent_bytes as f64 }
    }
}

/// A relayed call of a run of hostile traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackedCall {
    /// Before it, on the quiet server.
    pub quiet: Traffic,
    /// During it.
    pub attacked: Traffic,
}
