//! State of an import.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use turn_proto::{AllocationImportError, AllocationRecord, Progress, Renamed, ReservedPort};
use turn_types::{AllocationId, RelayId};

use crate::dtls::SessionImportError;
use crate::io::Net;
use crate::snapshot::PacketSnapshot;
use crate::sockets::{RelaySettings, RelaySocket};
use crate::stream::StreamImportError;

/// Error of an import. The allocation, connection or session has ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// An allocation was refused.
    #[error("{0}")]
    Allocation(AllocationImportError),
    /// A client's connection was closed.
    #[error("connection of a client: {0}")]
    Connection(StreamImportError),
    /// A client's DTLS session has ended.
    #[error("session of a client: {0}")]
    Session(SessionImportError),
    /// A connection with a peer was closed.
    #[error("connection with a peer: {0}")]
    Peer(StreamImportError),
}

/// State of an import. Until the commit, the allocations may change in the predecessor.
#[derive(Debug)]
pub(super) struct Import<N: Net> {
    /// Relays of imported allocations, with the names in both processes.
    pub(super) relays: BTreeMap<AllocationId, [Option<Renamed>; 2]>,
    /// Refused allocations.
    pub(super) refused: BTreeMap<AllocationId, RefusedAllocation<N>>,
    /// Records of imported allocations that have ended in this process. The records are reported
    /// after the commit. A later snapshot of an allocation removes the allocation's record.
    pub(super) ended: BTreeMap<AllocationId, Box<AllocationRecord>>,
    pub(super) errors: Vec<ImportError>,
    /// Reserved ports.
    pub(super) reserved: Vec<ReservedPort>,
    /// Progress in the last snapshot.
    pub(super) progress: Vec<(AllocationId, Progress)>,
    /// Counted losses in the last snapshot.
    pub(super) losses: Vec<(SocketAddr, u32)>,
    /// Packets of moving clients, oldest first.
    pub(super) queued: Vec<PacketSnapshot>,
    /// Settings of the relay sockets in the predecessor.
    pub(super) settings: RelaySettings,
}

#[derive(Debug)]
pub(super) struct RefusedAllocation<N: Net> {
    pub(super) error: AllocationImportError,
    pub(super) state: Vec<u8>,
    pub(super) relays: Vec<ImportedRelay<N>>,
    /// Progress since the snapshot of the allocation.
    pub(super) progress: Option<Progress>,
}

/// Relay with its name in the predecessor.
#[derive(Debug)]
pub(super) struct ImportedRelay<N: Net> {
    pub(super) relay: RelayId,
    pub(super) at: SocketAddr,
    /// Dedicated socket of the relay. `None` if the relay shares a socket.
    pub(super) socket: Option<ImportedSocket<N>>,
}

#[derive(Debug)]
pub(super) enum ImportedSocket<N: Net> {
    Descriptor(N::Descriptor),
    Udp(RelaySocket<N>),
    Listener(N::Acceptor),
}

impl<N: Net> Default for Import<N> {
    fn default() -> Self {
        Self {
            relays: BTreeMap::new(),
            refused: BTreeMap::new(),
            ended: BTreeMap::new(),
            errors: Vec::new(),
            reserved: Vec::new(),
            progress: Vec::new(),
            losses: Vec::new(),
            queued: Vec::new(),
            settings: RelaySettings::default(),
        }
    }
}
