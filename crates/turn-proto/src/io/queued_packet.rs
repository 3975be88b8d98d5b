//! A packet that waits for the allocation of its client (RFC 8016).

use alloc::boxed::Box;

use turn_types::{ClientPath, IpMeta};

use crate::limits::QUEUED_PACKET_OVERHEAD;

/// A packet that has waited for its client's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPacket {
    /// The path it came by.
    pub path: ClientPath,
    /// Its TTL, traffic class and DF.
    pub meta: IpMeta,
    /// The packet.
    pub bytes: Box<[u8]>,
    /// It is a request that has waited for its user before
    /// ([`Verdict::Wait`](crate::Verdict::Wait)), and has its fate.
    pub has_waited: bool,
}

impl QueuedPacket {
    /// The memory that it is charged for.
    pub(crate) const fn cost(&self) -> usize {
        self.bytes.len() + QUEUED_PACKET_OVERHEAD
    }
}
