//! Classification of `errno` values for datagrams.

use libc::c_int;

/// Reason why a datagram was not sent. The datagram is dropped. No reason is fatal to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The socket's send buffer is full (`EAGAIN`). The remaining datagrams for the socket are
    /// dropped as well.
    WouldBlock,
    /// The device's queue is full, or memory is short (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// The datagram is larger than the interface or the path accepts without fragmentation, or
    /// larger than any datagram can be (`EMSGSIZE`).
    TooBig,
    /// A firewall rule or a routing policy of this host forbids the datagram (`EPERM`, `EACCES`).
    Denied,
    /// No path to the address exists (`ENETUNREACH`, `EHOSTUNREACH` and similar).
    Unreachable,
    /// The socket was closed before the batch was flushed.
    Closed,
    /// The `errno` is none of the above.
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

/// Returns true if an ICMP message for an earlier datagram can have left this error on the socket
/// (`IP_RECVERR`). The kernel returns such an error from the next call and clears it. The call may
/// therefore be repeated.
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

/// Returns true if the kernel may have refused a run of segments as such. `EMSGSIZE` (`EINVAL` in
/// older kernels) means that a segment exceeds the MTU, since runs are never fragmented. `EIO`
/// means that the device or an IPsec policy does not support runs.
pub(crate) const fn refuses_run(errno: c_int) -> bool {
    matches!(errno, libc::EMSGSIZE | libc::EINVAL | libc::EIO)
}
