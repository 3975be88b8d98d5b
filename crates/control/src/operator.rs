//! Requests of an operator to the whole server, answered by the binary's main loop.

use std::time::Duration;

use tokio::sync::oneshot;
use turn_proto::GrantLimits;
use turn_types::Secret;

use crate::{OperatorError, Revocable, Revocation, RevokeReport, RevokeWish};

/// A request to the server as a whole.
#[derive(Debug)]
pub enum OperatorRequest {
    /// Read the configuration again and apply its live changes.
    Reload {
        /// End sessions whose secret or key counts no longer.
        end_sessions: bool,
        /// The answer.
        reply: oneshot::Sender<ReloadReport>,
    },
    /// Take no new allocations, and stop when the last one has ended.
    Drain {
        /// End live allocations after this time; `None` is the configured time, or the longest
        /// possible when that is none.
        deadline: Option<Duration>,
        /// The answer, when draining has begun.
        reply: oneshot::Sender<DrainReport>,
    },
    /// Take new allocations again.
    CancelDrain(oneshot::Sender<CancelReport>),
    /// Refuse a credential from now on, and end its sessions.
    Revoke {
        /// What to refuse, and for how long.
        wish: RevokeWish,
        /// The answer, when its sessions have ended.
        reply: oneshot::Sender<Result<RevokeReport, OperatorError>>,
    },
    /// Take a revocation back.
    Restore {
        /// What is no longer refused.
        what: Revocable,
        /// The answer.
        reply: oneshot::Sender<Result<Revocation, OperatorError>>,
    },
    /// Make a time-limited credential.
    Mint {
        /// The credential.
        wish: MintWish,
        /// The answer.
        reply: oneshot::Sender<Result<Minted, OperatorError>>,
    },
    /// List the revocations in force.
    Revocations(oneshot::Sender<Vec<Revocation>>),
}

impl OperatorRequest {
    /// Returns true for a change; false for a query.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        match self {
            Self::Reload { .. }
            | Self::Drain { .. }
            | Self::CancelDrain(_)
            | Self::Revoke { .. }
            | Self::Restore { .. } => true,
            Self::Mint { .. } | Self::Revocations(_) => false,
        }
    }

    /// Returns true if the caller has closed the reply channel.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        match self {
            Self::Reload { reply, .. } => reply.is_closed(),
            Self::Drain { reply, .. } => reply.is_closed(),
            Self::CancelDrain(reply) => reply.is_closed(),
            Self::Revoke { reply, .. } => reply.is_closed(),
            Self::Restore { reply, .. } => reply.is_closed(),
            Self::Mint { reply, .. } => reply.is_closed(),
            Self::Revocations(reply) => reply.is_closed(),
        }
    }
}

/// A time-limited credential that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MintWish {
    /// Its realm; `None` is the server's own.
    pub realm: Option<String>,
    /// The user part; empty for none.
    pub user: String,
    /// Time until it expires; at most, and by default, the configured one.
    pub lasts: Option<Duration>,
    /// Its limits, where names have them.
    pub limits: GrantLimits,
}

/// A time-limited credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minted {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret<String>,
    /// Time until it expires.
    pub ttl: Duration,
    /// URIs of the server.
    pub uris: Vec<String>,
}

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Differences that are in force now.
    pub applied: Vec<Change>,
    /// Differences that will be in force after a restart.
    pub needs_restart: Vec<Change>,
    /// Sessions that were ended, as their secret or key counts no longer; `None` if that was not
    /// asked for.
    pub ended: Option<u64>,
    /// Certificates whose files cannot be used now: the previous certificates remain in effect.
    pub certificates_kept: Vec<String>,
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
