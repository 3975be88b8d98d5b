//! System calls and conversions that several files use.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};
use turn_types::IpFamily;

/// Converts a result of -1 to the error in `errno`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns the calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Permits a socket to use addresses that no interface has.
pub(crate) fn free(fd: BorrowedFd<'_>, family: IpFamily) -> io::Result<()> {
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_FREEBIND, 1),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1),
    }
}

/// Sets a socket option of type `int`.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` lives until the call returns, and the kernel reads exactly `len` bytes of
    // `value`.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    check(result).map(drop)
}

/// Number of the socket option `SO_BINDTOIFINDEX` in `asm-generic/socket.h`. The C library's
/// bindings lack the constant for some targets.
const SO_BINDTOIFINDEX: c_int = 62;

/// Binds a socket to an interface, selected by index. The socket must not be bound to an interface
/// yet. No capability is needed for this operation (Linux 5.7).
pub(crate) fn bind_to_device(fd: BorrowedFd<'_>, index: NonZeroU32) -> io::Result<()> {
    let index = c_int::try_from(index.get()).map_err(|_| io::ErrorKind::InvalidInput)?;
    set_option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, index)
}

/// Returns the index of the interface that a socket is bound to, or `None` if the socket is not
/// bound to an interface.
pub(crate) fn bound_device(fd: BorrowedFd<'_>) -> io::Result<Option<NonZeroU32>> {
    let index = option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX)?;
    Ok(u32::try_from(index).ok().and_then(NonZeroU32::new))
}

/// Reads a socket option of type `int`.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    option_bytes(fd, level, name).map(c_int::from_ne_bytes)
}

/// Reads a socket option of type `u64`.
pub(crate) fn option_u64(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<u64> {
    option_bytes(fd, level, name).map(u64::from_ne_bytes)
}

fn option_bytes<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<[u8; N]> {
    let mut value = [0; N];
    let mut len = N as socklen_t;
    // SAFETY: `value` and `len` live until the call returns. The kernel copies at most `len` bytes,
    // the size of `value`, and `value` needs no alignment.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    check(result).map(|_| value)
}
