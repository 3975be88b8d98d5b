//! The system calls that send, as a trait that tests implement with a faulty kernel.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

use crate::abi::sys::errno;

/// The kernel, or its replacement in tests.
pub(crate) trait Wire {
    /// Sends the first messages of `count` and returns their number, at least 1, or the error of
    /// the first.
    ///
    /// # Safety
    /// `headers` points at `count` headers, at least 1, each of which points at an address, a
    /// control buffer and iovecs that are valid to read for the lengths in the header, as are the
    /// payloads that the iovecs point at. The headers are not used elsewhere during the call.
    unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: *mut libc::mmsghdr,
        count: usize,
    ) -> Result<usize, c_int>;
}

/// The real one: `sendto` for a message of one piece that says nothing but where to, otherwise
/// `sendmmsg`, and `sendmsg` for a message alone or where that is missing. The fewer structures,
/// the less the kernel has to copy.
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
            // SAFETY: the caller promises `count` valid headers; the kernel writes only to their
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
            // SAFETY: the caller promises one iovec there that is valid to read.
            let piece = unsafe { &*header.msg_iov };
            let (to, len) = (header.msg_name.cast_const().cast(), header.msg_namelen);
            // SAFETY: and that its payload and the address are.
            unsafe { libc::sendto(fd, piece.iov_base, piece.iov_len, flags, to, len) }
        } else {
            // SAFETY: the caller promises that all it points at is valid.
            unsafe { libc::sendmsg(fd, header, flags) }
        };
        if sent < 0 { Err(errno()) } else { Ok(1) }
    }
}
