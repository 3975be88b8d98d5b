//! Plain types of a send batch: flows, messages, segments and parts.

use std::net::{IpAddr, SocketAddr};

use turn_types::IpMeta;

/// Datagrams of one run: the bound of older kernels (newer ones take 128).
pub(crate) const MAX_RUN_SEGMENTS: usize = 64;

/// Bytes of one run: the largest UDP payload in IPv4, which binds super-packets too.
pub(crate) const MAX_RUN_BYTES: usize = 65_507;

/// A socket to send by: the caller's own number for it, resolved at the flush by a
/// [`SocketTable`](crate::SocketTable). A number that is reused while a batch waits would send by
/// another socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendSocket(pub u64);

/// All that datagrams must share to be sent as one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// By which socket.
    pub socket: SendSocket,
    /// Destination.
    pub to: SocketAddr,
    /// From which of the host's addresses; `None` leaves it to the socket and the routes.
    pub from: Option<IpAddr>,
    /// TTL, traffic class, DF.
    pub meta: IpMeta,
}

/// A piece of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes that were received and stay where they are.
    Rx {
        /// Which message of the [`RxBatch`](crate::RxBatch).
        message: usize,
        /// Offset in its data.
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
    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Rx { len, .. } | Self::Arena { len, .. } => len,
        }
    }

    /// Returns true if it has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// One datagram, or a run of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) flow: Flow,
    /// Index of the first datagram; each names the next.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Number of datagrams.
    pub(crate) segments: usize,
    /// Size of the first datagram, and of all but the last.
    pub(crate) segment_size: usize,
    /// Size of all together.
    pub(crate) bytes: usize,
    /// True while another datagram may join.
    pub(crate) open: bool,
    /// The socket's next message; 0, which follows none, behind the last.
    pub(crate) next: usize,
}

/// The messages of one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) socket: SendSocket,
    /// Index of the first message; each names the next.
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// One datagram of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// The message's next datagram; 0, which follows none, behind the last.
    pub(crate) next: usize,
    /// Index of the first part; the others follow it, and then the parts of the next datagram.
    pub(crate) first_part: usize,
    pub(crate) parts: usize,
    pub(crate) bytes: usize,
    pub(crate) tag: u32,
}

impl Message {
    pub(crate) const fn new(flow: Flow, first: usize, bytes: usize) -> Self {
        // Nothing can follow an empty datagram: a run cannot hold one.
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
