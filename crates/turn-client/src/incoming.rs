//! Results of processing a datagram from the server.

use stun_wire::{ChannelNumber, Icmp};
use turn_types::PeerAddr;

/// Result of a datagram from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'d> {
    /// Datagram from a peer.
    Data {
        /// Address and port of the sender.
        peer: PeerAddr,
        /// Payload, a part of the datagram.
        payload: &'d [u8],
        /// Number of the channel, or `None` for a Data indication.
        channel: Option<ChannelNumber>,
    },
    /// ICMP error about a datagram sent to a peer (RFC 8656 §11.6).
    Icmp {
        /// Destination of the datagram.
        peer: PeerAddr,
        /// ICMP error.
        icmp: Icmp,
    },
    /// Response to a request of this client. Events report the result.
    Answer,
    /// Datagram without effect.
    Ignored(IgnoreReason),
}

/// Reason why a datagram is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Neither STUN nor ChannelData.
    NotStun,
    /// Malformed STUN or ChannelData.
    Malformed,
    /// Response to an unknown or completed request.
    UnknownTransaction,
    /// Message that a server does not send.
    Unexpected,
    /// ChannelData on an unbound channel.
    UnknownChannel,
    /// Data from a peer without a permission (RFC 8656 §11.4).
    NoPermission,
    /// Response without valid integrity (RFC 8489 §9.2.5).
    Untrusted,
}
