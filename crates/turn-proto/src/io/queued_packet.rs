//! Packet that waits for the client's allocation (RFC 8016).

use alloc::boxed::Box;

use turn_types::{ClientPath, IpMeta};

use crate::limits::QUEUED_PACKET_OVERHEAD;

/// Packet that has waited for the client's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPacket {
    /// Path by which the packet arrived.
    pub path: ClientPath,
    /// TTL, traffic class and DF of the packet.
    pub meta: IpMeta,
    /// Content of the packet.
    pub bytes: Box<[u8]>,
    /// True for a request that had already waited for a user look-up
    /// ([`Verdict::Wait`](crate::Verdict::Wait)) and had that verdict.
    pub has_waited: bool,
}

impl QueuedPacket {
    /// Returns the memory charged for the packet, in bytes.
    pub(crate) const fn cost(&self) -> usize {
        self.bytes.len() + QUEUED_PACKET_OVERHEAD
    }
}
