//! Netlink requests to the kernel, and the kernel's answers.
//!
//! Only system calls are `unsafe`. Answers are decoded as bytes, within their bounds. Decoding
//! stops at the first truncated message or attribute.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use libc::c_int;

use crate::abi::sys::{check, set_option};

/// Size of `struct nlmsghdr` in bytes.
const HEADER: usize = 16;

/// Size in bytes of `struct nlattr` and of `struct rtattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// Size in bytes of `struct genlmsghdr`, the first part of every generic netlink message.
pub const GENERIC_HEADER: usize = 4;

/// Size of the receive buffer in bytes. The kernel fills the buffer with complete messages, up to
/// 32 KiB. No known device causes a longer message, and a longer message would be an error instead
/// of being truncated.
pub(crate) const ANSWER_MAX: usize = 64 * 1024;

/// Maximum number of attempts to read a list that changes during the dump.
const ATTEMPTS: u32 = 16;

/// Netlink request to the kernel.
#[derive(Debug)]
pub struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// Creates a request for a list of objects (`NLM_F_DUMP`). `header` is the fixed header of
    /// messages of the type.
    #[must_use]
    pub fn dump(kind: u16, header: &[u8]) -> Self {
        Self { kind, flags: (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16, body: header.to_vec() }
    }

    /// Creates a request that reads or changes one object (`NLM_F_ACK`). `header` is the fixed
    /// header of messages of the type.
    #[must_use]
    pub fn one(kind: u16, header: &[u8]) -> Self {
        Self { kind, flags: (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16, body: header.to_vec() }
    }

    /// Appends an attribute with a short text, stored as a NUL-terminated string.
    pub fn attribute_text(&mut self, kind: u16, value: &str) {
        let len = ATTRIBUTE_HEADER + value.len() + 1;
        debug_assert!(len <= usize::from(u16::MAX));
        self.body.extend((len as u16).to_ne_bytes());
        self.body.extend(kind.to_ne_bytes());
        self.body.extend(value.as_bytes());
        self.body.push(0);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn encode(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.body);
        bytes
    }
}

/// Returns a generic netlink header for a command, with version 1.
#[must_use]
pub const fn generic_header(command: u8) -> [u8; GENERIC_HEADER] {
    [command, 1, 0, 0]
}

/// Netlink socket, in the network namespace of the thread that opened the socket. Receiving blocks.
#[derive(Debug)]
pub struct Socket {
    file: File,
    sequence: u32,
}

impl Socket {
    /// Opens a netlink socket for `protocol`, `NETLINK_ROUTE` or `NETLINK_GENERIC` for example.
    ///
    /// # Errors
    /// The process has no descriptors left, or netlink sockets are forbidden.
    pub fn open(protocol: c_int) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was opened just now and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: fd.into(), sequence: 0 })
    }

    /// Enables strict checking of request headers, so dumps contain only the selected objects.
    ///
    /// # Errors
    /// The kernel is older than Linux 4.20. Dumps then contain all objects.
    pub(crate) fn select_strictly(&self) -> io::Result<()> {
        set_option(self.file.as_fd(), libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1)
    }

    /// Assigns a netlink address to the socket. Multicast groups require an address.
    pub(crate) fn bind(&self) -> io::Result<()> {
        // SAFETY: every member is an integer, for which zero is a valid value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` lives until the call returns, and is `len` bytes long.
        check(unsafe { libc::bind(self.file.as_raw_fd(), (&raw const address).cast(), len) })
            .map(drop)
    }

    /// Joins a multicast group (`RTNLGRP_*`). From then on the socket receives the group's
    /// notifications.
    pub(crate) fn join(&self, group: c_int) -> io::Result<()> {
        set_option(self.file.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Sends a request and returns the answers, without netlink headers.
    ///
    /// # Errors
    /// The kernel rejected the request, or the list changed during every attempt.
    pub fn ask(&mut self, request: &Request) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..ATTEMPTS {
            if let Some(answers) = self.ask_once(request)? {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the network's devices or routes keep changing while they are read"))
    }

    /// Sends a request once. Returns `None` if the list changed during the dump, since the answers
    /// may be incomplete.
    fn ask_once(&mut self, request: &Request) -> io::Result<Option<Vec<Vec<u8>>>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.file.write_all(&request.encode(self.sequence))?;
        let mut buffer = vec![0; ANSWER_MAX];
        let mut answers = Vec::new();
        let mut whole = true;
        loop {
            let len = self.receive(&mut buffer, 0)?;
            for message in messages(&buffer[..len]) {
                if message.sequence != self.sequence {
                    continue;
                }
                whole &= message.flags & libc::NLM_F_DUMP_INTR as u16 == 0;
                match c_int::from(message.kind) {
                    // Both kinds carry a result code. `NLMSG_DONE` marks the end of a list,
                    // `NLMSG_ERROR` any other result.
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                        message.outcome()?;
                        return Ok(whole.then_some(answers));
                    }
                    libc::NLMSG_NOOP => {}
                    _ => answers.push(message.body.to_vec()),
                }
            }
        }
    }

    /// Receives the next datagram of answers or notifications at the start of `buffer`, and returns
    /// the length.
    pub(crate) fn receive(&self, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
        loop {
            // SAFETY: the kernel writes at most `buffer.len()` bytes, to the start of `buffer`.
            let len = unsafe {
                libc::recv(
                    self.file.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_TRUNC | flags,
                )
            };
            match usize::try_from(len) {
                Ok(len) if len <= buffer.len() => return Ok(len),
                Ok(len) => {
                    let text = format!("the kernel's answer is of {len} bytes, {ANSWER_MAX} fit");
                    return Err(io::Error::other(text));
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Received netlink message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// Returns the result code of an acknowledgement or error message as a result.
    fn outcome(&self) -> io::Result<()> {
        match self.body.first_chunk().copied().map_or(0, i32::from_ne_bytes) {
            0.. => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        }
    }
}

/// Returns the complete messages in `bytes`, up to the first truncated message.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let len = u32::from_ne_bytes(*header.first_chunk()?) as usize;
        let body = bytes.get(HEADER..len)?;
        let message = Message {
            kind: u16::from_ne_bytes(*header[4..].first_chunk()?),
            flags: u16::from_ne_bytes(*header[6..].first_chunk()?),
            sequence: u32::from_ne_bytes(*header[8..].first_chunk()?),
            body,
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Attribute of a netlink message.
#[derive(Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Type of the attribute, such as `RTA_DST`.
    pub kind: u16,
    /// Value of the attribute, without padding.
    pub value: &'a [u8],
}

/// Returns the complete attributes in `bytes`, up to the first truncated attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    // Flag bits of the type, which describe the encoding of the value.
    const NESTED_AND_ORDER: u16 = 0xc000;
    std::iter::from_fn(move || {
        let header: &[u8; ATTRIBUTE_HEADER] = bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !NESTED_AND_ORDER;
        let value = bytes.get(ATTRIBUTE_HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, value })
    })
}

/// Decodes a 32-bit number in native byte order. Returns `None` if the value is too short.
#[must_use]
pub fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Decodes an IP address. The length selects the family.
#[must_use]
pub fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk().map(|bytes| Ipv4Addr::from(*bytes).into()),
        16 => value.first_chunk().map(|bytes| Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

/// Decodes a NUL-terminated name. Invalid UTF-8 is replaced.
#[must_use]
pub fn text(value: &[u8]) -> String {
    let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        Request { kind, flags: 0, body: body.to_vec() }.encode(sequence)
    }

    #[test]
    fn messages_and_attributes_come_out_as_they_went_in() {
        let mut request = Request::one(16, &generic_header(3));
        request.attribute_text(2, "netdev");
        request.attribute_text(3, "abc");
        let mut bytes = request.encode(7);
        bytes.extend(message(3, 8, &[]));
        let read: Vec<Message<'_>> = messages(&bytes).collect();
        assert_eq!((read[0].kind, read[0].sequence), (16, 7));
        assert_eq!(read[1], Message { kind: 3, flags: 0, sequence: 8, body: &[] });
        let said: Vec<Attribute<'_>> = attributes(&read[0].body[GENERIC_HEADER..]).collect();
        assert_eq!(
            said,
            [Attribute { kind: 2, value: b"netdev\0" }, Attribute { kind: 3, value: b"abc\0" }]
        );
        assert_eq!(text(said[0].value), "netdev");
    }

    #[test]
    fn truncated_messages_end_early() {
        let mut request = Request::one(16, &[]);
        request.attribute_text(2, "netdev");
        let bytes = request.encode(1);
        for len in 0..bytes.len() {
            assert_eq!(messages(&bytes[..len]).count(), 0, "{len}");
        }
        for len in 0..request.body.len() - 1 {
            assert_eq!(attributes(&request.body[..len]).count(), 0, "{len}");
        }
        // A length field shorter than the header must not cause an infinite loop.
        for len in 0..HEADER as u8 {
            let mut bytes = message(1, 1, &[0; 8]);
            bytes[..4].copy_from_slice(&u32::from(len).to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0);
        }
        for len in 0..ATTRIBUTE_HEADER as u16 {
            let [low, high] = len.to_ne_bytes();
            assert_eq!(attributes(&[low, high, 1, 0, 0, 0, 0, 0]).count(), 0);
        }
        assert_eq!(attributes(&[0xff; 64]).count(), 0);
        assert_eq!(messages(&[0xff; 64]).count(), 0);
        assert_eq!(number(&[1, 2, 3]), None);
        assert_eq!(text(b"no end"), "no end");
    }

    #[test]
    fn the_kernels_error_has_a_number() {
        let mut socket = Socket::open(libc::NETLINK_GENERIC).unwrap();
        let mut request = Request::one(
            libc::GENL_ID_CTRL as u16,
            &generic_header(libc::CTRL_CMD_GETFAMILY as u8),
        );
        request.attribute_text(libc::CTRL_ATTR_FAMILY_NAME as u16, "nobody");
        let error = socket.ask(&request).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        // The socket remains usable after an error.
        let mut request = Request::one(
            libc::GENL_ID_CTRL as u16,
            &generic_header(libc::CTRL_CMD_GETFAMILY as u8),
        );
        request.attribute_text(libc::CTRL_ATTR_FAMILY_NAME as u16, "nlctrl");
        assert_eq!(socket.ask(&request).unwrap().len(), 1);
    }
}
