//! Request from its first transmission to its result (RFC 8489 §6.2).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use stun_wire::{ChannelNumber, Method, TransactionId};
use turn_types::{Instant, IpFamily, PeerAddr};

use crate::config::Retransmission;
use crate::event::RequestKind;
use crate::login::Login;

/// Purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Binding,
    Allocate,
    Refresh {
        half: Option<IpFamily>,
        lifetime_secs: Option<u32>,
    },
    /// Refresh with the mobility ticket.
    Move {
        lifetime_secs: Option<u32>,
    },
    CreatePermission {
        peers: Vec<IpAddr>,
    },
    ChannelBind {
        channel: ChannelNumber,
        peer: PeerAddr,
    },
}

impl Purpose {
    pub(crate) const fn method(&self) -> Method {
        match self {
            Self::Binding => Method::BINDING,
            Self::Allocate => Method::ALLOCATE,
            Self::Refresh { .. } | Self::Move { .. } => Method::REFRESH,
            Self::CreatePermission { .. } => Method::CREATE_PERMISSION,
            Self::ChannelBind { .. } => Method::CHANNEL_BIND,
        }
    }

    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            Self::Binding => RequestKind::Binding,
            Self::Allocate => RequestKind::Allocate,
            Self::Refresh { .. } | Self::Move { .. } => RequestKind::Refresh,
            Self::CreatePermission { peers } => RequestKind::CreatePermission(
                // A CreatePermission has at least one peer.
                peers.first().copied().unwrap_or(IpFamily::V4.unspecified()),
            ),
            Self::ChannelBind { channel, peer } => RequestKind::ChannelBind(*channel, *peer),
        }
    }
}

/// Request in flight.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: TransactionId,
    pub(crate) purpose: Purpose,
    /// Bytes of the request. Retransmissions are identical.
    pub(crate) bytes: Vec<u8>,
    /// Credentials of the request, which its response must match.
    pub(crate) login: Option<Arc<Login>>,
    /// Time of the first transmission. Granted lifetimes start at this time at the earliest.
    pub(crate) started: Instant,
    /// Time of the next transmission, or of the failure.
    pub(crate) deadline: Instant,
    /// True if the request must be sent.
    pub(crate) to_send: bool,
    /// True if a response with invalid integrity has arrived.
    pub(crate) untrusted: bool,
    /// Number of challenges followed so far for this request.
    pub(crate) challenges: u8,
    sends: u32,
}

/// Data of a request to be started.
pub(crate) struct Start {
    pub(crate) id: TransactionId,
    pub(crate) purpose: Purpose,
    pub(crate) bytes: Vec<u8>,
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) challenges: u8,
}

impl Transaction {
    pub(crate) fn start(start: Start, now: Instant, timing: Timing) -> Self {
        let Start { id, purpose, bytes, login, challenges } = start;
        Self {
            id,
            purpose,
            bytes,
            login,
            started: now,
            deadline: timing.deadline_after(now, 1),
            to_send: true,
            untrusted: false,
            challenges,
            sends: 1,
        }
    }

    /// Schedules a retransmission. Call this at the deadline. Returns false if the transaction has
    /// timed out.
    pub(crate) fn retransmit(&mut self, timing: Timing) -> bool {
        if self.sends >= timing.sends_max() {
            return false;
        }
        self.sends += 1;
        self.to_send = true;
        // The schedule continues from the deadline: a late caller must not extend the schedule.
        self.deadline = timing.deadline_after(self.deadline, self.sends);
        true
    }
}

/// Schedule of transmissions on this transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) retransmission: Retransmission,
    pub(crate) reliable: bool,
}

impl Timing {
    const fn sends_max(self) -> u32 {
        if self.reliable { 1 } else { self.retransmission.sends_max }
    }

    /// Returns the deadline after transmission number `sends` at `sent`.
    fn deadline_after(self, sent: Instant, sends: u32) -> Instant {
        let Retransmission { rto, last_wait, reliable_timeout, .. } = self.retransmission;
        sent + if self.reliable {
            reliable_timeout
        } else if sends >= self.sends_max() {
            rto.saturating_mul(last_wait)
        } else {
            rto.saturating_mul(1 << (sends - 1).min(16))
        }
    }
}
