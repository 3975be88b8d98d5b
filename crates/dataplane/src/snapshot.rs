//! State of a worker, exported for another process.
//!
//! [`Snapshot`] also defines the wire format, so each field number is declared only in this module.
//! A snapshot contains the indices of sockets. The descriptors are transferred separately.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use state_format::{Bytes, fields};
use turn_proto::{Progress, QueuedPacket, ReservedPort};
use turn_types::{AllocationId, ClientPath, FiveTuple, IpMeta, RelayId, SocketId, WorkerId};

use crate::io::{Net, StreamIo as _};

/// State of a worker, or changes since an earlier snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// Exported worker.
    pub worker: WorkerId,
    /// Last assigned id.
    pub last_id: AllocationId,
    /// New and changed allocations. The last entry of an allocation is valid.
    pub allocations: Vec<AllocationSnapshot>,
    /// Removed allocations: each has ended or moved to another worker. An import handles the
    /// removals before [`Self::allocations`].
    pub ended: Vec<AllocationId>,
    /// True if the snapshot contains all changes.
    pub complete: bool,
    /// Progress of allocations with an earlier snapshot.
    pub progress: Vec<(AllocationId, Progress)>,
    /// Connections of clients over TCP and TLS.
    pub streams: Vec<StreamSnapshot>,
    /// DTLS sessions, with keys.
    pub sessions: Vec<Bytes>,
    /// Connections with peers (RFC 6062).
    pub peers: Vec<StreamSnapshot>,
    /// Counters of datagrams that the kernel has dropped at full receive buffers and that the
    /// worker has already reported, by the address of the socket.
    pub losses: Vec<(SocketAddr, u32)>,
    /// Reserved ports of all workers' clients. Only the first worker exports these ports.
    pub reserved: Vec<ReservedPort>,
    /// Number of allocations, including allocations of earlier snapshots.
    pub total: u64,
    /// Packets of moving clients (RFC 8016), oldest first.
    pub queued: Vec<PacketSnapshot>,
}

/// Packet over UDP or DTLS that waits for the client's allocation.
#[derive(Debug)]
pub struct PacketSnapshot {
    five_tuple: FiveTuple,
    ttl: u8,
    tos: u8,
    bytes: Bytes,
    has_waited: bool,
}

impl PacketSnapshot {
    pub(crate) fn of(packet: &QueuedPacket) -> Self {
        let QueuedPacket { path, meta, bytes, has_waited } = packet;
        let IpMeta { ttl, tos, dont_fragment: _ } = *meta;
        let (five_tuple, bytes) = (path.five_tuple, Bytes(bytes.to_vec()));
        Self { five_tuple, ttl, tos, bytes, has_waited: *has_waited }
    }

    /// Returns the packet, as if received through this socket.
    pub(crate) fn at(self, socket: SocketId) -> QueuedPacket {
        let Self { five_tuple, ttl, tos, bytes, has_waited } = self;
        // The DF bit of a received packet is unknown.
        let meta = IpMeta { ttl, tos, dont_fragment: false };
        let path = ClientPath { five_tuple, socket };
        QueuedPacket { path, meta, bytes: bytes.0.into(), has_waited }
    }

    pub(crate) const fn five_tuple(&self) -> FiveTuple {
        self.five_tuple
    }
}

/// State of an allocation.
#[derive(Clone)]
pub struct AllocationSnapshot {
    /// Id of the allocation.
    pub id: AllocationId,
    /// State for the [import](turn_proto::Server::import), with keys.
    pub state: Bytes,
    /// Relays of the allocation.
    pub relays: Vec<RelaySnapshot>,
    /// DTLS session of the client, with keys. Exported only to a keeper. An import
    /// [skips](crate::limits::RECORDS_SKIPPED) record numbers.
    pub session: Option<Bytes>,
    /// Number of processes that have received this snapshot from a keeper.
    pub given: u32,
}

/// Relay of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct RelaySnapshot {
    /// Name of the relay in the exporting process.
    pub relay: RelayId,
    /// Local address.
    pub at: SocketAddr,
    /// True if the relay has a dedicated socket.
    pub own: bool,
    /// Dedicated socket. Exported only with the first snapshot of the allocation.
    pub socket: Option<DescriptorIndex>,
}

/// TCP connection of a client, or with a peer.
#[derive(Clone, Debug)]
pub struct StreamSnapshot {
    /// State of the connection, including TLS keys.
    pub state: Bytes,
    /// Remote address, which identifies the socket. `None` if both directions have ended. Then the
    /// kernel does not report the address any more, although bytes may be unread.
    pub remote: Option<SocketAddr>,
    /// Index of the socket's descriptor.
    pub socket: DescriptorIndex,
}

impl StreamSnapshot {
    /// Opens the socket. Returns `None` if the descriptor belongs to another socket. A broken
    /// connection is detected by reading, because unread bytes must not be lost.
    pub(crate) fn open<N: Net>(
        &self,
        net: &N,
        descriptors: &mut Descriptors<N::Descriptor>,
    ) -> Option<N::Stream> {
        let stream = net.open_stream(descriptors.take(self.socket)?).ok()?;
        let is_it = match stream.remote_addr() {
            Ok(remote) => self.remote == Some(remote),
            Err(error) => error.kind() == io::ErrorKind::NotConnected,
        };
        is_it.then_some(stream)
    }
}

/// Index of a descriptor of an [`Export`].
pub type DescriptorIndex = u32;

fields!(Snapshot {
    1 => worker,
    2 => last_id,
    3 => allocations,
    4 => ended,
    5 => complete,
    6 => progress,
    7 => streams,
    8 => sessions,
    9 => peers,
    10 => losses,
    11 => reserved,
    12 => total,
    13 => queued or Vec::new(),
});
fields!(PacketSnapshot { 1 => five_tuple, 2 => ttl, 3 => tos, 4 => bytes, 5 => has_waited });
fields!(AllocationSnapshot { 1 => id, 2 => state, 3 => relays, 4 => session, 5 => given });
fields!(RelaySnapshot { 1 => relay, 2 => at, 3 => own, 4 => socket });
fields!(StreamSnapshot { 1 => state, 2 => remote, 3 => socket });

impl fmt::Debug for AllocationSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationSnapshot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Snapshot with descriptors of type `D`.
#[derive(Debug)]
pub struct Export<D> {
    /// State without descriptors.
    pub snapshot: Snapshot,
    /// Descriptors, by index.
    pub descriptors: Vec<D>,
}

impl<D> Export<D> {
    /// Creates the snapshot of a worker without allocations.
    #[must_use]
    pub const fn new(worker: WorkerId) -> Self {
        let snapshot = Snapshot {
            worker,
            last_id: AllocationId::new(worker, 0),
            allocations: Vec::new(),
            ended: Vec::new(),
            complete: true,
            progress: Vec::new(),
            streams: Vec::new(),
            sessions: Vec::new(),
            peers: Vec::new(),
            losses: Vec::new(),
            reserved: Vec::new(),
            total: 0,
            queued: Vec::new(),
        };
        Self { snapshot, descriptors: Vec::new() }
    }

    /// Adds a descriptor, and returns the index.
    pub(crate) fn add(&mut self, descriptor: D) -> DescriptorIndex {
        self.descriptors.push(descriptor);
        self.descriptors.len() as DescriptorIndex - 1
    }

    /// Splits the export into the snapshot and the descriptors, for an import.
    pub(crate) fn into_parts(self) -> (Snapshot, Descriptors<D>) {
        (self.snapshot, Descriptors(self.descriptors.into_iter().map(Some).collect()))
    }
}

/// Descriptors of an export. Unused descriptors are closed.
#[derive(Debug)]
pub(crate) struct Descriptors<D>(Vec<Option<D>>);

impl<D> Descriptors<D> {
    /// Takes a descriptor. Returns `None` if the index is invalid or the descriptor was taken
    /// already.
    pub(crate) fn take(&mut self, index: DescriptorIndex) -> Option<D> {
        self.0.get_mut(index as usize)?.take()
    }
}
