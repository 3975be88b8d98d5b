//! System calls that send, as a trait that tests implement with a faulty kernel.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

use crate::abi::sys::errno;

/// Interface for sending messages, implemented by the kernel and by replacements in tests.
pub(crate) trait Wire {
    /// Sends messages, starting with the first of `count`, and returns the number of sent messages,
    /// at least 1. Returns an error if the first message fails.
    ///
    /// # Safety
    /// `headers` must point at `count` headers, at least 1. Each header must point at an address, a
    /// control buffer and iovecs that are valid to read for the lengths in the header. The payloads
    /// that the iovecs point at must be valid to read. The headers must not be used otherwise
    /// during the call.
    unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: *mut libc::mmsghdr,
        count: usize,
    ) -> Result<usize, c_int>;
}

/// Sending through the real kernel. Several messages are sent by `sendmmsg`. A single message is
/// sent by `sendto` if the message has one piece and no control messages, and otherwise by
/// `sendmsg`. If `sendmmsg` is missing, each message is sent as a single message. The reason is
/// that the kernel copies fewer structures for the simpler calls.
pub(crate) struct Kernel {
    pub(crate) sendmmsg: bool,
}

impl Wire for Kernel {
    unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: *mut libc::mmsghdr,
        count: usize,
    ) -> Result<usize, c_int> {
        let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
        if count > 1 && self.sendmmsg {
            // SAFETY: the caller promises `count` valid headers. The kernel writes only to their
            // `msg_len`.
            let sent = unsafe { libc::sendmmsg(fd, headers, count as _, flags as _) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) if errno() == libc::ENOSYS => self.sendmmsg = false,
                Err(_) => return Err(errno()),
            }
        }
        // SAFETY: the caller promises that the first header is valid to read.
        let header = unsafe { &(*headers).msg_hdr };
        let sent = if header.msg_iovlen == 1 && header.msg_controllen == 0 {
            // SAFETY: the caller promises that the header's one iovec is valid to read.
            let piece = unsafe { &*header.msg_iov };
            let (to, len) = (header.msg_name.cast_const().cast(), header.msg_namelen);
            // SAFETY: the caller promises that the payload and the address are valid to read.
            unsafe { libc::sendto(fd, piece.iov_base, piece.iov_len, flags, to, len) }
        } else {
            // SAFETY: the caller promises that everything the header points at is valid.
            unsafe { libc::sendmsg(fd, header, flags) }
        };
        if sent < 0 { Err(errno()) } else { Ok(1) }
    }
}
