//! Plain types of a send batch: flows, messages, segments and parts.

use std::net::{IpAddr, SocketAddr};

use turn_types::IpMeta;

/// Maximum number of datagrams in a run. This is the limit of older kernels (newer kernels accept
/// 128).
pub(crate) const MAX_RUN_SEGMENTS: usize = 64;

/// Maximum number of bytes in a run: the largest UDP payload in IPv4. The limit applies to
/// super-packets too.
pub(crate) const MAX_RUN_BYTES: usize = 65_507;

/// Number that the caller assigns to a socket. A [`SocketTable`](crate::SocketTable) resolves the
/// number at the flush. If a number is reused while a batch is pending, datagrams leave by the
/// wrong socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendSocket(pub u64);

/// Properties that datagrams must share to be sent as one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Socket that sends the datagrams.
    pub socket: SendSocket,
    /// Destination.
    pub to: SocketAddr,
    /// Source address on this host. `None` leaves the choice to the socket and the routes.
    pub from: Option<IpAddr>,
    /// TTL, traffic class and DF.
    pub meta: IpMeta,
}

/// Range of bytes that is a piece of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Received bytes, which remain in the receive batch.
    Rx {
        /// Index of the message in the [`RxBatch`](crate::RxBatch).
        message: usize,
        /// Offset in the message's data.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// Bytes written into the batch's arena.
    Arena {
        /// Offset in the arena.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
}

impl Part {
    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Rx { len, .. } | Self::Arena { len, .. } => len,
        }
    }

    /// Returns true if the part has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// Single datagram, or a run of datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) flow: Flow,
    /// Index of the first datagram. Each datagram has the index of the next.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Number of datagrams.
    pub(crate) segments: usize,
    /// Size in bytes of each datagram except the last, which may be shorter.
    pub(crate) segment_size: usize,
    /// Total size of all datagrams in bytes.
    pub(crate) bytes: usize,
    /// True while another datagram may join.
    pub(crate) open: bool,
    /// Index of the next message of the socket. 0 marks the last message, since message 0 is never
    /// a successor.
    pub(crate) next: usize,
}

/// Messages of one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) socket: SendSocket,
    /// Index of the first message. Each message has the index of the next.
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Datagram of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Index of the next datagram of the message. 0 marks the last datagram, since datagram 0 is
    /// never a successor.
    pub(crate) next: usize,
    /// Index of the first part. Further parts of the datagram follow, and then the parts of the
    /// datagram pushed next.
    pub(crate) first_part: usize,
    pub(crate) parts: usize,
    pub(crate) bytes: usize,
    pub(crate) tag: u32,
}

impl Message {
    pub(crate) const fn new(flow: Flow, first: usize, bytes: usize) -> Self {
        // A run cannot contain an empty datagram, so no datagram can join.
        let open = bytes > 0;
        Self { flow, first, last: first, segments: 1, segment_size: bytes, bytes, open, next: 0 }
    }

    pub(crate) fn takes(&self, flow: &Flow, bytes: usize) -> bool {
        self.open
            && bytes > 0
            && bytes <= self.segment_size
            && self.segments < MAX_RUN_SEGMENTS
            && self.bytes + bytes <= MAX_RUN_BYTES
            && self.flow == *flow
    }

    pub(crate) const fn join(&mut self, segment: usize, bytes: usize) {
        self.last = segment;
        self.segments += 1;
        self.bytes += bytes;
        self.open = bytes == self.segment_size;
    }
}
