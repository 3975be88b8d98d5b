//! The system call that sends, as a trait that tests implement with a faulty kernel.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

use crate::abi::sys::errno;

/// The kernel, or its replacement in tests.
pub(crate) trait Wire {
    /// Sends the first messages of `count` and returns their number, at least 1, or the error of the first.
    ///
    /// # Safety
    /// `headers` points at `count` headers, at least 1, each of which points at an address, a control buffer
    /// and iovecs that are valid to read for the lengths in the header, as are the payloads that the iovecs
    /// point at. The headers are not used elsewhere during the call.
    unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: *mut libc::mmsghdr,
        count: usize,
    ) -> Result<usize, c_int>;
}

/// The real one: `sendmmsg`, and `sendmsg` where that is missing.
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
        if self.sendmmsg {
            // SAFETY: the caller promises `count` valid headers; the kernel writes only to their
            // `msg_len`.
            let sent = unsafe { libc::sendmmsg(fd, headers, count as _, flags as _) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) if errno() == libc::ENOSYS => self.sendmmsg = false,
                Err(_) => return Err(errno()),
            }
        }
        // SAFETY: the caller promises that the first header is valid; only the address of a field
        // of it is taken.
        let header = unsafe { &raw const (*headers).msg_hdr };
        // SAFETY: and that all it points at is.
        let sent = unsafe { libc::sendmsg(fd, header, flags) };
        if sent < 0 { Err(errno()) } else { Ok(1) }
    }
}
