//! Message headers for sending. Borrows of the payload keep the pointers in the headers valid.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr;

use libc::c_int;

use super::types::{Flow, Part};
use super::wire::Wire;
use crate::RxBatch;
use crate::abi::address::{self, ADDRESS_BYTES, RawAddress};
use crate::abi::cmsg::{self, Encoder};
use crate::abi::heap::{HeapArray, Zeroed};
use crate::udp::Unsaid;

/// Maximum number of messages per call. One call costs a fortieth of the kernel's work for a
/// message, so more messages would gain nothing. The headers of 64 messages remain in the cache.
pub(crate) const MAX_PER_CALL: usize = 64;

/// Size of all control messages of a sent message: segment size, TTL, traffic class, DF, source
/// address.
const CONTROL_BYTES: usize = cmsg::space(size_of::<u16>())
    + 3 * cmsg::space(size_of::<c_int>())
    + cmsg::space(size_of::<libc::in6_pktinfo>());

/// Address and control messages of a sent message, as read by the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Ancillary {
    control: [u8; CONTROL_BYTES],
    name: RawAddress,
}

// SAFETY: arrays of bytes.
unsafe impl Zeroed for Ancillary {}

/// Arrays of message headers that the kernel reads, allocated once.
pub(crate) struct Headers {
    /// Iovecs, at least one for each part of the messages.
    iovecs: HeapArray<libc::iovec>,
    ancillary: HeapArray<Ancillary>,
    headers: HeapArray<libc::mmsghdr>,
}

impl Headers {
    /// Allocates arrays for batches of up to `parts` parts.
    pub(crate) fn new(parts: usize) -> Self {
        Self {
            iovecs: HeapArray::new(parts),
            ancillary: HeapArray::new(MAX_PER_CALL),
            headers: HeapArray::new(MAX_PER_CALL),
        }
    }

    /// Starts an empty list of headers for messages with parts in `rx` and `arena`.
    pub(crate) const fn load<'a>(&'a mut self, rx: &'a RxBatch, arena: &'a [u8]) -> Loaded<'a> {
        Loaded { arrays: self, parts: 0, len: 0, rx, arena }
    }
}

/// Message headers with iovecs that point at payload borrowed for `'a`.
pub(crate) struct Loaded<'a> {
    arrays: &'a mut Headers,
    /// Number of iovecs written since [`clear`](Self::clear).
    parts: usize,
    /// Number of headers.
    len: usize,
    rx: &'a RxBatch,
    arena: &'a [u8],
}

impl Loaded<'_> {
    /// Removes all headers.
    pub(crate) const fn clear(&mut self) {
        self.parts = 0;
        self.len = 0;
    }

    /// Writes the next header, for a message that consists of `parts`. `segment_size` makes the
    /// kernel split the message into segments of that size. `unsaid` has the header fields that the
    /// socket options do not provide.
    ///
    /// Up to [`MAX_PER_CALL`] headers are permitted (asserted). Panics if a part is outside the
    /// receive batch or the arena, like slice indexing.
    pub(crate) fn push(
        &mut self,
        flow: &Flow,
        parts: impl Iterator<Item = Part>,
        segment_size: Option<u16>,
        unsaid: Unsaid,
    ) {
        let first = self.parts;
        parts.for_each(|part| self.point(part));
        let parts = self.parts - first;
        let ancillary = self.arrays.ancillary.get_mut(self.len);
        let name_len = address::encode(flow.to, &mut ancillary.name);
        let control_len = write_control(&mut ancillary.control, flow, segment_size, unsaid);
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

    /// Points the next iovec at the bytes of a part.
    fn point(&mut self, part: Part) {
        let bytes = match part {
            Part::Rx { message, start, len } => self.rx.bytes(message, start..start + len),
            Part::Arena { start, len } => &self.arena[start..start + len],
        };
        let iovec = self.arrays.iovecs.get_mut(self.parts);
        // The kernel only reads through this pointer. The type has no const because it also serves
        // for receiving.
        iovec.iov_base = bytes.as_ptr().cast_mut().cast();
        iovec.iov_len = bytes.len();
        self.parts += 1;
    }

    /// Sends messages, starting with header `first`, and returns the number of sent messages.
    /// Returns the kernel's error if message `first` fails.
    pub(crate) fn send(
        &mut self,
        wire: &mut impl Wire,
        fd: BorrowedFd<'_>,
        first: usize,
    ) -> Result<usize, c_int> {
        assert!(first < self.len, "nothing to send");
        let headers = self.arrays.headers.pointer(first);
        // SAFETY: `push` has written headers `first..len` since this value was created. Each header
        // points at a separate element of `ancillary`, with lengths within that element, and at
        // iovecs that `point` wrote for the header since the last `clear`. The iovecs point at
        // payload borrowed for as long as this value lives. The arrays never move, and `&mut self`
        // excludes other uses.
        unsafe { wire.send(fd, headers, self.len - first) }
    }
}

/// Writes the control messages of a message, and returns the length of all in bytes.
fn write_control(
    buffer: &mut [u8; CONTROL_BYTES],
    flow: &Flow,
    segment_size: Option<u16>,
    unsaid: Unsaid,
) -> usize {
    let mut control = Encoder::new(buffer);
    if let Some(size) = segment_size {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
    let v6 = flow.to.is_ipv6();
    let (level, ttl, tos) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS)
    };
    for (kind, value) in [(ttl, unsaid.ttl), (tos, unsaid.tos)] {
        if let Some(value) = value {
            control.push(level, kind, &c_int::from(value).to_ne_bytes());
        }
    }
    if flow.meta.dont_fragment && v6 {
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
