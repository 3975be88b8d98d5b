//! Receive batches: many messages per system call. Messages that the kernel has merged (GRO) remain
//! merged.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsRawFd;

use libc::c_int;
use turn_types::IpMeta;

use crate::abi::address::{self, ADDRESS_BYTES, RawAddress};
use crate::abi::cmsg::{self, Decoder};
use crate::abi::errno::left_by_icmp;
use crate::abi::heap::{HeapArray, Zeroed};
use crate::abi::sys::errno;
use crate::{Occupancy, UdpSocket};

/// Size of a payload buffer in bytes. A super-packet has up to 65,535 bytes with headers, and a
/// smaller buffer would truncate such messages.
const PAYLOAD_BYTES: usize = 65_536;

/// Distance between consecutive payload buffers in bytes. Small datagrams touch only the heads of
/// the buffers. If the distance were a multiple of the page size, all heads would fall into the
/// same few sets of the first-level cache.
const STRIDE: usize = PAYLOAD_BYTES + 5 * 64;

/// Size in bytes of the buffer passed to [`RxBatch::fill`]. A complete STUN message, up to 65,552
/// bytes, fits.
pub const FILL_BYTES: usize = STRIDE;

/// Size of all control messages that a socket may attach. TTL, traffic class, losses and segment
/// size are an `int` each. `in6_pktinfo` is the larger of the two packet infos.
const CONTROL_BYTES: usize =
    4 * cmsg::space(size_of::<c_int>()) + cmsg::space(size_of::<libc::in6_pktinfo>());

/// Maximum bytes of a buffer that an Ethernet datagram uses. These pages are populated on creation,
/// so memory does not grow with the packet rate.
const HEAD_BYTES: usize = 2048;

/// Maximum number of messages in a batch. More messages would use cold buffers without any gain.
const MAX_MESSAGES: usize = 1024;

/// Maximum number of errors left by ICMP that one call swallows. Each try clears one error. epoll
/// reports a socket with more errors again.
const MAX_ERRORS_SWALLOWED: usize = 8;

/// Buffers for the messages of one or several receive calls, allocated once and reused.
///
/// Each message reserves 64 KiB of address space. Only the heads and the pages ever written are
/// populated.
pub struct RxBatch {
    payload: HeapArray<u8>,
    ancillary: HeapArray<Ancillary>,
    /// Iovecs, one per message, which point at the payload buffers.
    iovecs: HeapArray<libc::iovec>,
    headers: HeapArray<libc::mmsghdr>,
    /// Decoded headers of the received messages.
    received: Vec<Meta>,
    /// Sum of the payload bytes of the received messages.
    held: usize,
    stats: RecvStats,
}

/// Counters of a [`RxBatch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvStats {
    /// Number of datagrams. Each segment of a merged message is counted.
    pub datagrams: u64,
    /// Number of payload bytes.
    pub bytes: u64,
    /// Number of messages with truncated payload or control messages, or without a sender.
    pub truncated: u64,
    /// Histogram of messages per receive call, without empty calls.
    pub messages_per_call: Occupancy,
    /// Histogram of datagrams per message.
    pub segments_per_message: Occupancy,
}

/// Sender address and control messages of a message, as written by the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Ancillary {
    control: [u8; CONTROL_BYTES],
    name: RawAddress,
}

// SAFETY: arrays of bytes.
unsafe impl Zeroed for Ancillary {}

#[derive(Clone, Copy)]
struct Meta {
    from: SocketAddr,
    to: Option<IpAddr>,
    meta: IpMeta,
    segment_size: usize,
    len: usize,
    truncated: bool,
    kernel_drops: u32,
}

/// Received message: a datagram, or several of equal size from one sender to one address.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub from: SocketAddr,
    /// Local destination address. Only with [`UdpOptions::packet_info`](crate::UdpOptions).
    pub to: Option<IpAddr>,
    /// TTL and traffic class, which all segments share.
    pub meta: IpMeta,
    /// Size in bytes of each segment except the last, which may be shorter. Equal to the length of
    /// `data` for a single datagram.
    pub segment_size: usize,
    /// Payload of all segments, concatenated.
    pub data: &'a [u8],
    /// True if a part of the message is missing. The caller should drop the message.
    pub truncated: bool,
    /// Number of datagrams lost to a full receive buffer between the opening of the socket and this
    /// message. The counter wraps.
    pub kernel_drops: u32,
}

impl<'a> Received<'a> {
    /// Returns the datagrams and their offsets in `data`. An empty datagram is one empty segment.
    pub fn segments(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (data, size) = (self.data, self.segment_size.max(1));
        (0..data.len().max(1)).step_by(size).map(move |start| {
            let end = data.len().min(start + size);
            (start, &data[start..end])
        })
    }
}

impl RxBatch {
    /// Allocates buffers for up to `messages` messages, clamped to 1..=1024.
    #[must_use]
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MAX_MESSAGES);
        let mut batch = Self {
            payload: HeapArray::new(messages * STRIDE),
            ancillary: HeapArray::new(messages),
            iovecs: HeapArray::new(messages),
            headers: HeapArray::new(messages),
            received: Vec::with_capacity(messages),
            held: 0,
            stats: RecvStats::default(),
        };
        for index in 0..messages {
            batch.point(index);
        }
        batch
    }

    /// Receives queued messages up to the capacity, and returns the number of messages. 0 means
    /// that none is queued. Previous messages are removed. Errors that ICMP left on the socket are
    /// skipped, since the error queue has these errors in full.
    ///
    /// # Errors
    /// `recvmmsg` fails: the program has a fault, or memory is short.
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.clear();
        self.recv_more(socket, self.headers.len()).map(|received| received.len())
    }

    /// Appends up to `most` queued messages, limited by the [free capacity](Self::room). Unlike
    /// [`recv`](Self::recv), this function retains previous messages. Returns the index range of
    /// the new messages.
    ///
    /// # Errors
    /// [`recv`](Self::recv) would fail.
    pub fn recv_more(&mut self, socket: &UdpSocket, most: usize) -> io::Result<Range<usize>> {
        let (first, most) = (self.received.len(), most.min(self.room()));
        if most == 0 {
            return Ok(first..first);
        }
        for _ in 0..=MAX_ERRORS_SWALLOWED {
            // SAFETY: the `most` headers from the `first`-th on are within the array. Each points
            // at an address, a control buffer and one iovec, and the iovec points at a payload
            // buffer. All of these are in arrays that `self` owns and that never move. `point` set
            // the lengths, and `clear` restored the lengths that the kernel changed. `&mut self`
            // excludes any reference into the arrays.
            let received = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.pointer(first),
                    most as _,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if let Ok(count) = usize::try_from(received) {
                self.read_headers(first..first + count);
                return Ok(first..first + count);
            }
            match errno() {
                libc::EAGAIN => break,
                libc::EINTR => {}
                errno if left_by_icmp(errno) => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(first..first)
    }

    /// Appends a message that was not received as a datagram, such as a part of a stream. `fill`
    /// writes the message into a buffer of [`FILL_BYTES`] and returns the length in bytes.
    ///
    /// Returns the index of the message. Returns `None` and appends nothing if the message is empty
    /// or the batch has no [free capacity](Self::room).
    ///
    /// # Errors
    /// `fill` fails. Nothing is appended.
    pub fn fill<E>(
        &mut self,
        from: SocketAddr,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Option<usize>, E> {
        let index = self.received.len();
        if self.room() == 0 {
            return Ok(None);
        }
        let room = self.payload.slice_mut(index * STRIDE..index * STRIDE + FILL_BYTES);
        let len = fill(room)?.min(FILL_BYTES);
        if len == 0 {
            return Ok(None);
        }
        self.held += len;
        self.received.push(Meta {
            from,
            to: None,
            meta: IpMeta::DEFAULT,
            segment_size: len,
            len,
            truncated: false,
            kernel_drops: 0,
        });
        Ok(Some(index))
    }

    /// Appends a copy of a message from a source without a socket, such as a simulated network.
    /// Returns the index of the message. Returns `None` and appends nothing if the batch has no
    /// [free capacity](Self::room).
    pub fn push(&mut self, message: &Received<'_>) -> Option<usize> {
        let index = self.received.len();
        if self.room() == 0 {
            return None;
        }
        let len = message.data.len().min(FILL_BYTES);
        let start = index * STRIDE;
        self.payload.slice_mut(start..start + len).copy_from_slice(&message.data[..len]);
        self.held += len;
        self.stats.datagrams += len.div_ceil(message.segment_size.max(1)).max(1) as u64;
        self.stats.bytes += len as u64;
        let Received { from, to, meta, segment_size, truncated, kernel_drops, .. } = *message;
        self.received.push(Meta { from, to, meta, segment_size, len, truncated, kernel_drops });
        Some(index)
    }

    /// Returns the number of messages that can still be appended.
    #[must_use]
    pub fn room(&self) -> usize {
        self.headers.len() - self.received.len()
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        // The kernel has changed the lengths in the headers of received messages.
        for index in 0..self.received.len() {
            self.set_lengths(index);
        }
        self.received.clear();
        self.held = 0;
    }

    /// Returns the sum of the payload bytes of all messages in the batch.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.held
    }

    /// Returns the number of messages in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.received.len()
    }

    /// Returns true if the batch has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Returns the message with index `index`. Panics if the index is out of range, like slice
    /// indexing.
    #[must_use]
    pub fn message(&self, index: usize) -> Received<'_> {
        let datagram = &self.received[index];
        Received {
            from: datagram.from,
            to: datagram.to,
            meta: datagram.meta,
            segment_size: datagram.segment_size,
            data: self.payload.slice(index * STRIDE..index * STRIDE + datagram.len),
            truncated: datagram.truncated,
            kernel_drops: datagram.kernel_drops,
        }
    }

    /// Returns the counters of the batch.
    #[must_use]
    pub const fn stats(&self) -> &RecvStats {
        &self.stats
    }

    /// Returns a range of a message's payload. Panics if the range is outside the payload, like
    /// slice indexing.
    pub(crate) fn bytes(&self, message: usize, range: Range<usize>) -> &[u8] {
        &self.message(message).data[range]
    }

    /// Initializes the header of one message. Called once per header.
    fn point(&mut self, index: usize) {
        for at in [0, HEAD_BYTES - 1] {
            // `black_box` prevents the compiler from removing the write, which populates the page.
            *std::hint::black_box(self.payload.get_mut(index * STRIDE + at)) = 0;
        }
        let iovec = self.iovecs.get_mut(index);
        iovec.iov_base = self.payload.pointer(index * STRIDE).cast();
        iovec.iov_len = PAYLOAD_BYTES;
        let ancillary = self.ancillary.pointer(index);
        let header = &mut self.headers.get_mut(index).msg_hdr;
        header.msg_iov = self.iovecs.pointer(index);
        header.msg_iovlen = 1;
        // SAFETY: `ancillary` points at an element of the array; only addresses are taken.
        header.msg_name = unsafe { (&raw mut (*ancillary).name).cast() };
        // SAFETY: as above.
        header.msg_control = unsafe { (&raw mut (*ancillary).control).cast() };
        self.set_lengths(index);
    }

    fn set_lengths(&mut self, index: usize) {
        let header = &mut self.headers.get_mut(index).msg_hdr;
        header.msg_namelen = ADDRESS_BYTES as _;
        header.msg_controllen = CONTROL_BYTES as _;
        header.msg_flags = 0;
    }

    fn read_headers(&mut self, new: Range<usize>) {
        self.stats.messages_per_call.record(new.len());
        for index in new {
            let datagram = read(self.headers.get(index), self.ancillary.get(index));
            let segments = datagram.len.div_ceil(datagram.segment_size.max(1)).max(1);
            self.stats.segments_per_message.record(segments);
            self.stats.datagrams += segments as u64;
            self.stats.bytes += datagram.len as u64;
            self.held += datagram.len;
            self.stats.truncated += u64::from(datagram.truncated);
            self.received.push(datagram);
        }
    }
}

impl std::fmt::Debug for RxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RxBatch")
            .field("capacity", &self.headers.len())
            .field("messages", &self.received.len())
            .finish_non_exhaustive()
    }
}

fn read(header: &libc::mmsghdr, ancillary: &Ancillary) -> Meta {
    let len = (header.msg_len as usize).min(PAYLOAD_BYTES);
    let incomplete = header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    // Neither case occurs with a UDP socket. A message without a sender could not get a response.
    let name = &ancillary.name[..ADDRESS_BYTES.min(header.msg_hdr.msg_namelen as usize)];
    let from = address::decode(name);
    // The type is `size_t` in one C library and `socklen_t` in another.
    let control_len: usize = header.msg_hdr.msg_controllen as _;
    let control = &ancillary.control[..CONTROL_BYTES.min(control_len)];
    let mut datagram = Meta {
        from: from.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
        to: None,
        meta: IpMeta::DEFAULT,
        segment_size: len,
        len,
        truncated: incomplete || from.is_none(),
        kernel_drops: 0,
    };
    for message in Decoder::new(control) {
        note(&mut datagram, message);
    }
    datagram
}

/// Stores the value of a control message in the header of the datagram.
fn note(datagram: &mut Meta, (level, kind, data): (c_int, c_int, &[u8])) {
    let number = cmsg::number(data).unwrap_or(0);
    match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) if number > 0 => {
            datagram.segment_size = datagram.len.min(number as usize);
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            datagram.meta.ttl = number as u8;
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            datagram.meta.tos = number as u8;
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) | (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            datagram.to = cmsg::destination((level, kind, data));
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => datagram.kernel_drops = number,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(data: &[u8], segment_size: usize) -> Received<'_> {
        let from = "127.0.0.1:1".parse().unwrap();
        let meta = IpMeta::DEFAULT;
        Received { from, to: None, meta, segment_size, data, truncated: false, kernel_drops: 0 }
    }

    #[test]
    fn segments_are_equal_but_for_the_last() {
        let whole = received(b"aaabbbc", 3);
        let segments: Vec<_> = whole.segments().collect();
        assert_eq!(segments, [(0, &b"aaa"[..]), (3, b"bbb"), (6, b"c")]);
    }

    #[test]
    fn a_single_datagram_is_one_segment_even_when_empty() {
        assert_eq!(received(b"abc", 3).segments().collect::<Vec<_>>(), [(0, &b"abc"[..])]);
        assert_eq!(received(b"", 0).segments().collect::<Vec<_>>(), [(0, &b""[..])]);
    }

    #[test]
    fn a_batch_may_move_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<RxBatch>();
    }
}
