//! Questions to the kernel by netlink, and its answers.
//!
//! Only the two system calls are `unsafe`. Answers are read as bytes, within their bounds: one that
//! is cut short ends early.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use libc::c_int;

use crate::abi::sys::{check, set_option};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Bytes of `struct nlattr`, and of `struct rtattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// Bytes of `struct genlmsghdr`, which begins every message of generic netlink.
pub const GENERIC_HEADER: usize = 4;

/// Size of the receive buffer: the kernel fills it with as many messages as fit, up to 32 KiB. No
/// known device has a longer message; a longer one would be refused, not truncated.
pub(crate) const ANSWER_MAX: usize = 64 * 1024;

/// Attempts to read a list that changes during the dump.
const ATTEMPTS: u32 = 16;

/// A question to the kernel.
#[derive(Debug)]
pub struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// Requests a list. `header` is the fixed header of messages of the type.
    #[must_use]
    pub fn dump(kind: u16, header: &[u8]) -> Self {
        Self { kind, flags: (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16, body: header.to_vec() }
    }

    /// Requests, or changes, one object.
    #[must_use]
    pub fn one(kind: u16, header: &[u8]) -> Self {
        Self { kind, flags: (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16, body: header.to_vec() }
    }

    /// Adds an attribute with a short name as its value.
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

/// The header of a message of generic netlink: the command, the first version.
#[must_use]
pub const fn generic_header(command: u8) -> [u8; GENERIC_HEADER] {
    [command, 1, 0, 0]
}

/// A socket that the kernel answers on, for the network namespace that the thread was in when it
/// was opened. Receiving from it blocks.
#[derive(Debug)]
pub struct Socket {
    file: File,
    sequence: u32,
}

impl Socket {
    /// `protocol`: `NETLINK_ROUTE` or `NETLINK_GENERIC`.
    ///
    /// # Errors
    /// Out of descriptors, or forbidden.
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

    /// Enables strict checking of request headers, so that dumps contain only the selected objects.
    ///
    /// # Errors
    /// Linux before 4.20 does not support it, and dumps everything.
    pub(crate) fn select_strictly(&self) -> io::Result<()> {
        set_option(self.file.as_fd(), libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1)
    }

    /// Gives the socket an address, without which it belongs to no group.
    pub(crate) fn bind(&self) -> io::Result<()> {
        // SAFETY: every member is an integer, of which zeros are values.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` lives until the call returns, and is `len` bytes long.
        check(unsafe { libc::bind(self.file.as_raw_fd(), (&raw const address).cast(), len) })
            .map(drop)
    }

    /// Joins a multicast group (`RTNLGRP_*`) and receives its notifications from then on.
    pub(crate) fn join(&self, group: c_int) -> io::Result<()> {
        set_option(self.file.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Sends a request and returns the answers, without their netlink headers.
    ///
    /// # Errors
    /// The kernel's error; or the list changed during every attempt.
    pub fn ask(&mut self, request: &Request) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..ATTEMPTS {
            if let Some(answers) = self.ask_once(request)? {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the network's devices or routes keep changing while they are read"))
    }

    /// `None`: something changed in between, and the answers may lack something.
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
                    // Both carry a result code: the end of a list, and any other result.
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

    /// The length of the next answer or notification, which is at the front of `buffer` then.
    pub(crate) fn receive(&self, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
        loop {
            // SAFETY: the kernel writes at most the buffer's length to where it is.
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

/// One received message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// Result code of an acknowledgement or error message.
    fn outcome(&self) -> io::Result<()> {
        match self.body.first_chunk().copied().map_or(0, i32::from_ne_bytes) {
            0.. => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        }
    }
}

/// The messages that lie whole in `bytes`.
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

/// An attribute of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, such as `RTA_DST`.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

/// The attributes that lie whole in `bytes`.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    // Bits that say how the value is written.
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

/// A number of 32 bits.
#[must_use]
pub fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// An IP address of either family, by its length.
#[must_use]
pub fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk().map(|bytes| Ipv4Addr::from(*bytes).into()),
        16 => value.first_chunk().map(|bytes| Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

/// A NUL-terminated name.
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
        // A length field shorter than its header must not loop for ever.
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
        // The same socket remains usable.
        let mut request = Request::one(
            libc::GENL_ID_CTRL as u16,
            &generic_header(libc::CTRL_CMD_GETFAMILY as u8),
        );
        request.attribute_text(libc::CTRL_ATTR_FAMILY_NAME as u16, "nlctrl");
        assert_eq!(socket.ask(&request).unwrap().len(), 1);
    }
}
