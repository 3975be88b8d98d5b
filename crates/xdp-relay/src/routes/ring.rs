//! Ring buffer of peers' datagrams for a worker whose client has a connection. The program writes
//! the datagrams before the stack looks up a socket.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{LazyLock, Mutex, PoisonError};

use aya::maps::ring_buf::RingBufItem;
use aya::maps::{ArrayOfMaps, Map, MapData, RingBuf};
use aya::{EbpfLoader, include_bytes_aligned};
use turn_types::{IpMeta, WorkerId};

use super::flow::{FlowCookie, Sum, pseudo};
use crate::bpf::layout::ring_datagram;
use crate::error::KernelPathError;

static RING: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/ring.bpf.o"));

/// Loader that all rings share. Each new loader would read the kernel's type information, which is
/// megabytes, although rings need none of the types. Calls wait for the rings when a server
/// restarts.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// Ring of datagrams for one worker.
pub struct Ring(RingBuf<MapData>);

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring of `bytes` bytes.
    pub(crate) fn make(bytes: u32) -> Result<Self, KernelPathError> {
        let mut object = {
            let mut loader = LOADER.lock().unwrap_or_else(PoisonError::into_inner);
            loader.map_max_entries("ring", bytes);
            loader.load(RING).map_err(KernelPathError::of)?
        };
        let map = object.take_map("ring").ok_or(KernelPathError::Missing("ring"))?;
        RingBuf::try_from(map).map(Self).map_err(KernelPathError::of)
    }

    /// Registers the ring for a worker, and replaces an earlier ring. From now on the programs fill
    /// the ring, and the kernel keeps the ring alive. The call takes time, because the kernel waits
    /// for all processors.
    pub(crate) fn enter(&self, worker: WorkerId, rings: MapData) -> Result<(), KernelPathError> {
        let mut rings: ArrayOfMaps<_, RingBuf<MapData>> =
            Map::ArrayOfMaps(rings).try_into().map_err(KernelPathError::of)?;
        rings.set(u32::from(worker.0), &self.0, 0).map_err(KernelPathError::of)
    }

    /// Returns a handle of this ring with a separate descriptor.
    pub(crate) fn copy(&self) -> Result<Self, KernelPathError> {
        let fd = self.0.as_fd().try_clone_to_owned().map_err(KernelPathError::Kernel)?;
        let map = Map::RingBuf(MapData::from_fd(fd).map_err(KernelPathError::of)?);
        RingBuf::try_from(map).map(Self).map_err(KernelPathError::of)
    }

    /// Returns the next datagram, or `None` if the ring is empty. epoll reports a later datagram.
    #[expect(clippy::should_implement_trait, reason = "what is taken is borrowed from the ring")]
    pub fn next(&mut self) -> Option<RingDatagram<RingEntry<'_>>> {
        self.0.next().map(RingDatagram)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes of a datagram in the ring. Dropping the value frees the space.
pub type RingEntry<'a> = RingBufItem<'a>;

/// Peer's datagram, as written by the programs.
pub struct RingDatagram<B>(B);

impl<B: Deref<Target = [u8]>> fmt::Debug for RingDatagram<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Handed").field("ticket", &self.flow_cookie()).finish_non_exhaustive()
    }
}

impl RingDatagram<Vec<u8>> {
    /// Creates a datagram without packet headers, for a simulated kernel. Checksum 0 means that the
    /// datagram has no checksum.
    #[must_use]
    pub fn simulated(flow_cookie: FlowCookie, payload: &[u8], checksum: u16) -> Self {
        let mut bytes = vec![0; ring_datagram::SIZE];
        let len = payload.len() as u16;
        bytes[ring_datagram::FLOW_COOKIE..][..8].copy_from_slice(&flow_cookie.0.to_ne_bytes());
        bytes[ring_datagram::LEN..][..2].copy_from_slice(&len.to_ne_bytes());
        bytes[ring_datagram::CHECK..][..2].copy_from_slice(&checksum.to_be_bytes());
        bytes[ring_datagram::TTL] = IpMeta::DEFAULT.ttl;
        bytes.extend_from_slice(payload);
        Self(bytes)
    }
}

impl<B: Deref<Target = [u8]>> RingDatagram<B> {
    /// Returns the cookie of the flow that the datagram belongs to.
    #[must_use]
    pub fn flow_cookie(&self) -> FlowCookie {
        FlowCookie(u64::from_ne_bytes(self.field(ring_datagram::FLOW_COOKIE)))
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let len = usize::from(u16::from_ne_bytes(self.field(ring_datagram::LEN)));
        self.0.get(ring_datagram::SIZE..).and_then(|payload| payload.get(..len)).unwrap_or_default()
    }

    /// Returns TTL and traffic class. The DF flag is not known.
    #[must_use]
    pub fn meta(&self) -> IpMeta {
        let [ttl] = self.field(ring_datagram::TTL);
        let [tos] = self.field(ring_datagram::TOS);
        IpMeta { ttl, tos, ..IpMeta::DEFAULT }
    }

    /// Returns true if the datagram from `peer` to `relayed` is unaltered, according to the
    /// checksum (RFC 768). Datagrams without a checksum are accepted. Datagrams with a partial
    /// checksum are accepted as well, because they never left this machine.
    #[must_use]
    pub fn is_intact(&self, peer: SocketAddr, relayed: SocketAddr) -> bool {
        let check: [u8; 2] = self.field(ring_datagram::CHECK);
        if check == [0; 2] || self.field(ring_datagram::PARTIAL) != [0] {
            return true;
        }
        let payload = self.payload();
        let len = payload.len() as u16 + 8;
        let sum = pseudo(peer, relayed).add(peer.port()).add(relayed.port());
        let sum = sum.add(len).add(len).add(u16::from_be_bytes(check)).plus(Sum::of_many(payload));
        // A sum that includes its own complement consists of ones.
        sum.bytes() == [0xFF; 2]
    }

    fn field<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; LEN])
    }
}
