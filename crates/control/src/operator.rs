//! Requests of an operator to the whole server, answered by the binary's main loop.

use std::time::Duration;

use tokio::sync::oneshot;

/// A request to the server as a whole.
#[derive(Debug)]
pub enum OperatorRequest {
    /// Read the configuration again and apply its live changes.
    Reload(oneshot::Sender<ReloadReport>),
    /// Take no new allocations, and stop when the last one has ended.
    Drain {
        /// End live allocations after this time; `None` is the configured time, or the longest possible when that is none.
        deadline: Option<Duration>,
        /// The answer, when draining has begun.
        reply: oneshot::Sender<DrainReport>,
    },
    /// Take new allocations again.
    CancelDrain(oneshot::Sender<CancelReport>),
}

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Differences that are in force now.
    pub applied: Vec<Change>,
    /// Differences that will be in force after a restart.
    pub needs_restart: Vec<Change>,
    /// Why nothing was applied at all; the old configuration is still in force.
    pub refused: Option<String>,
}

/// One difference between the old and the new configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, as in the configuration file.
    pub key: String,
    /// The value so far; secrets are shown as `<secret>`.
    pub old: String,
    /// The new value; secrets are shown as `<secret>`.
    pub new: String,
}

/// That draining has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Time until live allocations are ended.
    pub deadline: Duration,
    /// Allocations live now.
    pub allocations_live: u64,
    /// Time left of the drain that this one replaces.
    pub replaced: Option<Duration>,
}

/// The outcome of cancelling a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReport {
    /// New allocations are taken again; so much was left of the drain.
    Cancelled(Duration),
    /// The server does not drain.
    NotDraining,
    /// A signal told the server to end: its supervisor ends it in any case.
    ToldToEnd,
}
