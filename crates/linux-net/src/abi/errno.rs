//! Values of `errno` for datagrams.

use libc::c_int;

/// Why a datagram was not sent. Each is a drop, never fatal to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The socket's send buffer is full (`EAGAIN`); the rest for this socket went with it.
    WouldBlock,
    /// The device's queue is full, or memory is short (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// Larger than the interface or the path takes without fragmenting, or than a datagram can
    /// be (`EMSGSIZE`).
    TooBig,
    /// A firewall rule or a routing policy of this host forbids it (`EPERM`, `EACCES`).
    Denied,
    /// No way to the address (`ENETUNREACH`, `EHOSTUNREACH` and their like).
    Unreachable,
    /// The socket was closed before the batch was flushed.
    Closed,
    /// Any other `errno`.
    Other(c_int),
}

impl SendError {
    pub(crate) const fn from_errno(errno: c_int) -> Self {
        match errno {
            libc::EAGAIN => Self::WouldBlock,
            libc::ENOBUFS | libc::ENOMEM => Self::NoBuffers,
            libc::EMSGSIZE => Self::TooBig,
            libc::EPERM | libc::EACCES => Self::Denied,
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ECONNREFUSED => Self::Unreachable,
            other => Self::Other(other),
        }
    }
}

/// True if an ICMP message for an earlier datagram can have left this error on the socket
/// (`IP_RECVERR`). The kernel returns it from the next call and clears it, so the call may be
/// repeated.
pub(crate) const fn left_by_icmp(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EMSGSIZE
            | libc::EACCES
    )
}

/// True if the kernel may have refused a run of segments as such. `EMSGSIZE` (`EINVAL` in older
/// kernels): a segment exceeds the MTU, and runs are never fragmented. `EIO`: the device or an
/// IPsec policy does not support it.
pub(crate) const fn refuses_run(errno: c_int) -> bool {
    matches!(errno, libc::EMSGSIZE | libc::EINVAL | libc::EIO)
}
