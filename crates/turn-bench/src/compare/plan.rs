//! Messages between `compare` and the process on the clients' host (`steps`), as JSON.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cells::Cell;
use crate::cpu::Watched;
use crate::footprint::KernelMemory;
use crate::outcome::Outcome;
use crate::session::LoginArgs;
use crate::traffic::{Backend, Transport};

/// The turn of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Address of the server.
    pub(super) server: SocketAddr,
    /// Transport of the clients.
    pub(super) transport: Transport,
    /// Address of the first session's peer.
    pub(super) peer: SocketAddr,
    /// Login of the clients.
    pub(super) login: LoginArgs,
    /// Backend of the clients.
    pub(super) backend: Backend,
    /// Interface of the clients' host, for frames.
    pub(super) interface: String,
    /// Threads that send, and as many that receive.
    pub(super) threads: usize,
    /// Watched cores, and the server's process, whose memory is measured as well.
    pub(super) watched: Watched,
    /// The kernel's memory of the server, where it can be told.
    pub(super) kernel_memory: Option<KernelMemory>,
    /// Times of runs.
    pub(super) times: Times,
    /// The highest rate that is tried, in packets per second.
    pub(super) rate_max: Option<u32>,
    /// Steps in order.
    pub(super) steps: Vec<Step>,
}

/// Times of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// Warm-up of each run, discarded.
    pub(super) warm_up: Duration,
    /// Measured time at a fixed load, and of the run that confirms a maximum.
    pub(super) measured: Duration,
    /// Measured time of a try in the search for a maximum.
    pub(super) attempt: Duration,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Kind of load.
    pub(super) cell: Cell,
    /// Quantity to measure.
    pub(super) task: Task,
}

/// Quantity to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// None: a discarded run, so that the first that counts is like the others.
    WarmUp,
    /// The highest rate; the search begins near an earlier result.
    Most { near: Option<u32> },
    /// The cost of this rate per second.
    CommonRate(u32),
    /// Memory.
    Memory,
}

impl Task {
    /// Name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Most { .. } => MOST,
            Self::CommonRate(_) => COMMON_RATE,
            Self::Memory => MEMORY,
        }
    }
}

/// Steps at the highest rate.
pub(super) const MOST: &str = "most";
/// Steps at the fixed load that all servers get.
pub(super) const COMMON_RATE: &str = "common-rate";
/// Steps that measure memory.
pub(super) const MEMORY: &str = "memory";

/// Progress of a step, one per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// The step begins.
    Begun(Step),
    /// The step is done; a warm-up has no result.
    Done(Step, Option<Box<Outcome>>),
    /// The step failed.
    Failed(Step, String),
}
