//! Message headers for sending: what the kernel reads, kept safe by what is borrowed.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr;

use libc::c_int;

use crate::RxBatch;
use crate::address::{self, ADDRESS_BYTES, RawAddress};
use crate::cmsg::{self, Encoder};
use crate::heap::{HeapArray, Zeroed};
use crate::tx::{Flow, Part};
use crate::wire::Wire;

/// Messages per call. The call itself costs a fortieth of what the kernel does for one message,
/// so more would gain nothing, and these headers stay in the cache.
pub(crate) const MAX_PER_CALL: usize = 64;

/// All that a send can say: segment size, TTL, traffic class, DF, source address.
const CONTROL_BYTES: usize = cmsg::space(size_of::<u16>())
    + 3 * cmsg::space(size_of::<c_int>())
    + cmsg::space(size_of::<libc::in6_pktinfo>());

/// Where a message's address and control messages are written.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Ancillary {
    control: [u8; CONTROL_BYTES],
    name: RawAddress,
}

// SAFETY: arrays of bytes.
unsafe impl Zeroed for Ancillary {}

/// The arrays that the kernel reads, allocated once.
pub(crate) struct Headers {
    /// One for each part of the batch, in order.
    iovecs: HeapArray<libc::iovec>,
    ancillary: HeapArray<Ancillary>,
    headers: HeapArray<libc::mmsghdr>,
}

impl Headers {
    /// Room for batches of up to `parts` parts.
    pub(crate) fn new(parts: usize) -> Self {
        Self {
            iovecs: HeapArray::new(parts),
            ancillary: HeapArray::new(MAX_PER_CALL),
            headers: HeapArray::new(MAX_PER_CALL),
        }
    }

    /// Points an iovec at each part. Panics, like slice indexing, when a part is not in `rx` or
    /// `arena`.
    pub(crate) fn load<'a>(
        &'a mut self,
        parts: &[Part],
        rx: &'a RxBatch,
        arena: &'a [u8],
    ) -> Loaded<'a> {
        for (iovec, part) in self.iovecs.slice_mut(0..parts.len()).iter_mut().zip(parts) {
            let bytes = match *part {
                Part::Rx { message, start, len } => rx.bytes(message, start..start + len),
                Part::Arena { start, len } => &arena[start..start + len],
            };
            // Only read through: the type has no const because it also serves for receiving.
            iovec.iov_base = bytes.as_ptr().cast_mut().cast();
            iovec.iov_len = bytes.len();
        }
        Loaded { arrays: self, parts: parts.len(), len: 0, payload: PhantomData }
    }
}

/// Headers whose iovecs point at payload that is borrowed for `'a`.
pub(crate) struct Loaded<'a> {
    arrays: &'a mut Headers,
    /// How many iovecs point at something.
    parts: usize,
    /// How many headers were written since [`clear`](Self::clear).
    len: usize,
    payload: PhantomData<&'a [u8]>,
}

impl Loaded<'_> {
    /// Forgets the headers; the iovecs stay.
    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Writes the next header: `parts` parts from the `first`-th on, to be cut into segments of
    /// `segment_size` if that is given. At most [`MAX_PER_CALL`] (asserted).
    pub(crate) fn push(
        &mut self,
        flow: &Flow,
        first: usize,
        parts: usize,
        segment_size: Option<u16>,
    ) {
        assert!(first + parts <= self.parts, "parts of no batch");
        let ancillary = self.arrays.ancillary.get_mut(self.len);
        let name_len = address::encode(flow.to, &mut ancillary.name);
        let control_len = write_control(&mut ancillary.control, flow, segment_size);
        let ancillary = self.arrays.ancillary.pointer(self.len);
        let header = &mut self.arrays.headers.get_mut(self.len).msg_hdr;
        // SAFETY: `ancillary` points at an element of the array; only addresses are taken.
        header.msg_name = unsafe { (&raw mut (*ancillary).name).cast() };
        header.msg_namelen = name_len as _;
        // SAFETY: as above.
        header.msg_control = unsafe { (&raw mut (*ancillary).control).cast() };
        header.msg_controllen = control_len as _;
        header.msg_iov =
            if parts > 0 { self.arrays.iovecs.pointer(first) } else { ptr::null_mut() };
        header.msg_iovlen = parts as _;
        self.len += 1;
    }

    /// Sends headers from the `first`-th on, and says how many, or why not that one.
    pub(crate) fn send(
        &mut self,
        wire: &mut impl Wire,
        fd: BorrowedFd<'_>,
        first: usize,
    ) -> Result<usize, c_int> {
        assert!(first < self.len, "nothing to send");
        let headers = self.arrays.headers.pointer(first);
        // SAFETY: headers `first..len` were written by `push` since this value was made. Each
        // points at its own element of `ancillary`, with lengths within that, and at iovecs below
        // `parts` (asserted there). Those point at payload borrowed for as long as this value
        // lives. The arrays never move and `&mut self` excludes other uses.
        unsafe { wire.send(fd, headers, self.len - first) }
    }
}

/// Writes what a message says beside its payload and returns the length.
fn write_control(
    buffer: &mut [u8; CONTROL_BYTES],
    flow: &Flow,
    segment_size: Option<u16>,
) -> usize {
    let mut control = Encoder::new(buffer);
    if let Some(size) = segment_size {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
    let marks = flow.marks;
    let v6 = flow.to.is_ipv6();
    let (level, ttl, tos) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS)
    };
    if marks.ttl != 0 {
        control.push(level, ttl, &c_int::from(marks.ttl).to_ne_bytes());
    }
    if marks.tos != 0 {
        control.push(level, tos, &c_int::from(marks.tos).to_ne_bytes());
    }
    if marks.dont_fragment && v6 {
        control.push(level, libc::IPV6_DONTFRAG, &1_i32.to_ne_bytes());
    }
    match flow.from {
        // in_pktinfo: interface (any), source address, (ignored).
        Some(IpAddr::V4(from)) => {
            let mut info = [0; size_of::<libc::in_pktinfo>()];
            info[4..8].copy_from_slice(&from.octets());
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        // in6_pktinfo: source address, interface (any).
        Some(IpAddr::V6(from)) => {
            let mut info = [0; size_of::<libc::in6_pktinfo>()];
            info[..16].copy_from_slice(&from.octets());
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        None => {}
    }
    control.len()
}

const _: () = assert!(size_of::<libc::in_pktinfo>() == 12 && size_of::<libc::in6_pktinfo>() == 20);
const _: () = assert!(ADDRESS_BYTES == size_of::<RawAddress>());
