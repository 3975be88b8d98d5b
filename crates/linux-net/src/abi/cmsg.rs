//! Control messages as the kernel's bytes: a header (length, level, type), data, padding.
//!
//! Control messages are written and read without pointers. Every C library uses the kernel's
//! layout. The length is a `size_t` and includes header and data. Each message starts at a multiple
//! of the size of a `long`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;

const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();
const _: () = assert!(HEADER == size_of::<libc::cmsghdr>(), "the layout written below");

const fn align(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

/// Returns the number of bytes in a control buffer that a message with `data` bytes needs.
pub(crate) const fn space(data: usize) -> usize {
    align(HEADER) + align(data)
}

/// Encoder of consecutive control messages.
pub(crate) struct Encoder<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Encoder<'a> {
    /// Creates an encoder that writes from the start of `buffer`.
    pub(crate) const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Appends a control message. The buffer must have [`space`] for the message. Callers use
    /// constant buffer sizes.
    pub(crate) fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let message = &mut self.buffer[self.len..self.len + space(data.len())];
        let (length, rest) = message.split_at_mut(size_of::<usize>());
        length.copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        rest[0..4].copy_from_slice(&level.to_ne_bytes());
        rest[4..8].copy_from_slice(&kind.to_ne_bytes());
        rest[8..8 + data.len()].copy_from_slice(data);
        rest[8 + data.len()..].fill(0);
        self.len += space(data.len());
    }

    /// Returns the number of bytes written so far.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

/// Iterator over control messages, which stops at the first incomplete message.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Creates a decoder for a control buffer filled by the kernel.
    pub(crate) const fn new(control: &'a [u8]) -> Self {
        Self { rest: control }
    }
}

impl<'a> Iterator for Decoder<'a> {
    /// Level, type and data of a control message.
    type Item = (c_int, c_int, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.rest.split_first_chunk::<{ size_of::<usize>() }>()?;
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::from_ne_bytes(*length);
        let data = rest.get(..length.checked_sub(HEADER)?)?;
        self.rest = self.rest.get(align(length)..).unwrap_or_default();
        Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data))
    }
}

/// Decodes a number as the kernel writes it: one byte (`IP_TOS`) or an `int`.
pub(crate) fn number(data: &[u8]) -> Option<u32> {
    match data {
        [byte] => Some(u32::from(*byte)),
        _ => data.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes)),
    }
}

/// Returns the destination address of a received packet, from a packet info. Returns `None` for
/// other control messages.
pub(crate) fn destination((level, kind, data): (c_int, c_int, &[u8])) -> Option<IpAddr> {
    match (level, kind) {
        // in_pktinfo: interface, local address, the address in the header.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let octets = data.get(8..).and_then(<[u8]>::first_chunk::<4>)?;
            Some(IpAddr::V4(Ipv4Addr::from(*octets)))
        }
        // in6_pktinfo: the address in the header, interface.
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let octets = data.first_chunk::<16>()?;
            Some(IpAddr::V6(Ipv6Addr::from(*octets)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_read_back() {
        let mut buffer = [0xAA; 128];
        let mut encoder = Encoder::new(&mut buffer);
        encoder.push(1, 2, &[7]);
        encoder.push(3, -4, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        encoder.push(5, 6, &[]);
        let len = encoder.len();
        assert_eq!(len, space(1) + space(9) + space(0));
        let read: Vec<_> = Decoder::new(&buffer[..len]).collect();
        assert_eq!(read, [(1, 2, &[7][..]), (3, -4, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), (5, 6, &[])]);
    }

    #[test]
    fn space_is_that_of_the_system_headers() {
        for data in 0..40 {
            // SAFETY: CMSG_SPACE only computes.
            let theirs = unsafe { libc::CMSG_SPACE(data) } as usize;
            assert_eq!(space(data as usize), theirs, "{data}");
        }
    }

    #[test]
    fn a_last_message_without_padding_is_read() {
        // The kernel does not pad the last message.
        let mut buffer = [0; 64];
        Encoder::new(&mut buffer).push(1, 2, &[9]);
        let read: Vec<_> = Decoder::new(&buffer[..HEADER + 1]).collect();
        assert_eq!(read, [(1, 2, &[9][..])]);
    }

    #[test]
    fn lengths_that_lie_end_the_list() {
        let mut buffer = [0; 64];
        Encoder::new(&mut buffer).push(1, 2, &[9; 8]);
        for lie in [0, 1, HEADER - 1, 65, usize::MAX, usize::MAX - 7] {
            let mut bad = buffer;
            bad[..size_of::<usize>()].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(Decoder::new(&bad).count(), 0, "{lie}");
        }
        for cut in 0..HEADER + 8 {
            assert_eq!(Decoder::new(&buffer[..cut]).count(), 0, "cut at {cut}");
        }
    }

    #[test]
    fn numbers_are_a_byte_or_an_int() {
        assert_eq!(number(&[200]), Some(200));
        assert_eq!(number(&64_i32.to_ne_bytes()), Some(64));
        assert_eq!(number(&[1, 2]), None);
        assert_eq!(number(&[]), None);
    }
}
