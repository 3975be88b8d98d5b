//! Results of reading a datagram from the server.

use stun_wire::{ChannelNumber, Icmp};
use turn_types::PeerAddr;

/// Result of a datagram from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'d> {
    /// A peer's datagram.
    Data {
        /// Sender.
        peer: PeerAddr,
        /// Its data: a part of the datagram.
        payload: &'d [u8],
        /// The channel, or `None` for a Data indication.
        channel: Option<ChannelNumber>,
    },
    /// An ICMP error about something sent to a peer (RFC 8656 §11.6).
    Icmp {
        /// Destination of the datagram.
        peer: PeerAddr,
        /// The error.
        icmp: Icmp,
    },
    /// An answer to a request of this client; events report the result.
    Answer,
    /// Ignored.
    Ignored(IgnoreReason),
}

/// Why a datagram does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Neither STUN nor ChannelData.
    NotStun,
    /// STUN or ChannelData with an error in it.
    Malformed,
    /// A response to an unknown request, or to one already answered.
    UnknownTransaction,
    /// A message that a server does not send.
    Unexpected,
    /// ChannelData on an unbound channel.
    UnknownChannel,
    /// Data from a peer without a permission (RFC 8656 §11.4).
    NoPermission,
    /// A response without valid integrity (RFC 8489 §9.2.5).
    Untrusted,
}
