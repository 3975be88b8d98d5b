//! A live allocation as an operator is told of it.

use turn_proto::AllocationRecord;
use turn_types::Instant;

/// A live allocation, and the relay of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The allocation.
    pub record: AllocationRecord,
    /// Relay of the data of its channels.
    pub offload: SessionOffload,
}

/// Relay of the data of an allocation's channels. All else (requests, indications) goes
/// over the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOffload {
    /// The kernel has routes for some of its channels at least.
    Kernel {
        /// Channels with a route in the kernel, 1 or more, of [`AllocationRecord::channels`] bound.
        channels: u32,
        /// Packets that it relayed on them, both directions together; part of
        /// [`AllocationRecord::traffic`].
        packets: u64,
        /// Their bytes of payload.
        bytes: u64,
        /// Time of the last one, by the clock of [`AllocationRecord::created`]; `None` before
        /// the first.
        last_seen: Option<Instant>,
    },
    /// The sockets, for all of its channels, and why.
    Sockets(WhyNot),
}

turn_types::labels! {
    /// Why the kernel relays no channel of an allocation.
    WhyNot {
        /// There is no kernel path: switched off, or not to be had on this host.
        Off => "off",
        /// No channel is bound; Send and Data indications are for the sockets.
        NoChannel => "no_channel",
        /// Channels without data, or silent for ten seconds while slots were scarce.
        Silent => "silent",
        /// A channel is in use, and no slot is free.
        Full => "full",
        /// A channel is in use, few slots are free, and the client, its network, account or realm
        /// has its share.
        Share => "share",
        /// The client does not come over UDP.
        Transport => "transport",
        /// The kernel refused the flow.
        Failed => "failed",
    }
}
