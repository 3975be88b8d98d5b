//! Results of reading a datagram from the server.

use stun_wire::{ChannelNumber, Icmp};
use turn_types::PeerAddr;

/// A datagram from the server, as it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'d> {
    /// A peer's datagram.
    Data {
        /// Sender.
        peer: PeerAddr,
        /// Its data: a part of the datagram handed in.
        payload: &'d [u8],
        /// The channel it came by, or `None` for a Data indication.
        channel: Option<ChannelNumber>,
    },
    /// An ICMP error about something sent to a peer (RFC 8656 §11.6).
    Icmp {
        /// To whom it was sent.
        peer: PeerAddr,
        /// The error.
        icmp: Icmp,
    },
    /// An answer to one of our requests; events tell what came of it.
    Answer,
    /// Nothing that counts.
    Ignored(IgnoreReason),
}

/// Why a datagram does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Neither STUN nor ChannelData.
    NotStun,
    /// STUN or ChannelData with an error in it.
    Malformed,
    /// A response to no request of ours, or to one already answered.
    UnknownTransaction,
    /// A message that a server does not send.
    Unexpected,
    /// ChannelData on a channel we did not ask for.
    UnknownChannel,
    /// Data from a peer we asked no permission for (RFC 8656 §11.4).
    NoPermission,
    /// A response without proof of who sent it (RFC 8489 §9.2.5).
    Untrusted,
}
