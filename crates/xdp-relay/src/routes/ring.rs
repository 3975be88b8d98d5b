//! Ring buffer of peers' datagrams for a worker whose client has a connection: the program writes
//! them before the stack looks for a socket.

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

/// One loader for all rings: each reads the kernel's types when it is made, which are megabytes,
/// also if it needs none of them. Calls wait for it where a server starts again.
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
    /// Creates a ring of `bytes`.
    pub(crate) fn make(bytes: u32) -> Result<Self, KernelPathError> {
        let mut object = {
            let mut loader = LOADER.lock().unwrap_or_else(PoisonError::into_inner);
            loader.map_max_entries("ring", bytes);
            loader.load(RING).map_err(KernelPathError::of)?
        };
        let map = object.take_map("ring").ok_or(KernelPathError::Missing("ring"))?;
        RingBuf::try_from(map).map(Self).map_err(KernelPathError::of)
    }

    /// Makes it that of a worker, in place of an earlier one: the programs fill it from now on, and
    /// the kernel keeps it. That takes time, as the kernel waits for all processors.
    pub(crate) fn enter(&self, worker: WorkerId, rings: MapData) -> Result<(), KernelPathError> {
        let mut rings: ArrayOfMaps<_, RingBuf<MapData>> =
            Map::ArrayOfMaps(rings).try_into().map_err(KernelPathError::of)?;
        rings.set(u32::from(worker.0), &self.0, 0).map_err(KernelPathError::of)
    }

    /// The same ring, with a descriptor of its own.
    pub(crate) fn copy(&self) -> Result<Self, KernelPathError> {
        let fd = self.0.as_fd().try_clone_to_owned().map_err(KernelPathError::Kernel)?;
        let map = Map::RingBuf(MapData::from_fd(fd).map_err(KernelPathError::of)?);
        RingBuf::try_from(map).map(Self).map_err(KernelPathError::of)
    }

    /// The next datagram; `None` if there is none now. epoll reports the next one.
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

/// Bytes of one datagram in the ring. Dropping them frees their room.
pub type RingEntry<'a> = RingBufItem<'a>;

/// A peer's datagram, as the programs write it.
pub struct RingDatagram<B>(B);

impl<B: Deref<Target = [u8]>> fmt::Debug for RingDatagram<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Handed").field("ticket", &self.flow_cookie()).finish_non_exhaustive()
    }
}

impl RingDatagram<Vec<u8>> {
    /// A datagram without headers of its own, for a simulated kernel. Checksum 0: there is none.
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
    /// The flow that it belongs to.
    #[must_use]
    pub fn flow_cookie(&self) -> FlowCookie {
        FlowCookie(u64::from_ne_bytes(self.field(ring_datagram::FLOW_COOKIE)))
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let len = usize::from(u16::from_ne_bytes(self.field(ring_datagram::LEN)));
        self.0.get(ring_datagram::SIZE..).and_then(|payload| payload.get(..len)).unwrap_or_default()
    }

    /// TTL and traffic class. The DF flag is not known.
    #[must_use]
    pub fn meta(&self) -> IpMeta {
        let [ttl] = self.field(ring_datagram::TTL);
        let [tos] = self.field(ring_datagram::TOS);
        IpMeta { ttl, tos, ..IpMeta::DEFAULT }
    }

    /// True if the datagram from `peer` to `relayed` is unaltered, by its checksum if it has one
    /// (RFC 768). One with a partial checksum never left this machine.
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
        // All ones, of the sum with its complement.
        sum.bytes() == [0xFF; 2]
    }

    fn field<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; LEN])
    }
}
