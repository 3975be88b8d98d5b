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

/// Error of an import: the allocation, connection or session has ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// Allocation.
    #[error("{0}")]
    Allocation(AllocationImportError),
    /// Connection of a client.
    #[error("connection of a client: {0}")]
    Connection(StreamImportError),
    /// DTLS session of a client.
    #[error("session of a client: {0}")]
    Session(SessionImportError),
    /// Connection with a peer.
    #[error("connection with a peer: {0}")]
    Peer(StreamImportError),
}

/// State of an import. Until the commit the allocations may change in the predecessor.
#[derive(Debug)]
pub(super) struct Import<N: Net> {
    /// Relays of imported allocations, with both names.
    pub(super) relays: BTreeMap<AllocationId, [Option<Renamed>; 2]>,
    /// Refused allocations.
    pub(super) refused: BTreeMap<AllocationId, RefusedAllocation<N>>,
    /// Records of allocations that have ended here, told after the commit. A later snapshot of
    /// an allocation removes its record.
    pub(super) ended: BTreeMap<AllocationId, Box<AllocationRecord>>,
    pub(super) errors: Vec<ImportError>,
    /// Reserved ports.
    pub(super) reserved: Vec<ReservedPort>,
    /// Progress of the last snapshot.
    pub(super) progress: Vec<(AllocationId, Progress)>,
    /// Counted losses of the last snapshot.
    pub(super) losses: Vec<(SocketAddr, u32)>,
    /// Packets of clients that move, oldest first.
    pub(super) queued: Vec<PacketSnapshot>,
    /// Settings of the relay sockets in the predecessor.
    pub(super) settings: RelaySettings,
}

#[derive(Debug)]
pub(super) struct RefusedAllocation<N: Net> {
    pub(super) error: AllocationImportError,
    pub(super) state: Vec<u8>,
    pub(super) relays: Vec<ImportedRelay<N>>,
    /// Progress since its snapshot.
    pub(super) progress: Option<Progress>,
}

/// Relay with its name in the predecessor.
#[derive(Debug)]
pub(super) struct ImportedRelay<N: Net> {
    pub(super) relay: RelayId,
    pub(super) at: SocketAddr,
    /// Own socket.
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
