//! Sockets of any type: bound addresses, and descriptors that another process has created, such as
//! the predecessor before an upgrade, or systemd.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;

use libc::{c_int, socklen_t};

use super::address::{self, ADDRESS_BYTES};
use super::sys::{check, option, option_u64};

/// Returns the address that a socket is bound to.
pub(crate) fn bound_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = [0_u8; ADDRESS_BYTES];
    let mut len = ADDRESS_BYTES as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`; both live until the call returns.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), raw.as_mut_ptr().cast(), &raw mut len) })?;
    address::decode(&raw).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Checks a descriptor of another process, makes it non-blocking and close-on-exec, and returns its
/// address.
///
/// # Errors
/// The descriptor is not an IP socket of this type (`SOCK_DGRAM`, `SOCK_STREAM`), or the socket is
/// not bound.
pub(crate) fn adopt(fd: BorrowedFd<'_>, kind: c_int) -> io::Result<SocketAddr> {
    let local = adopt_unbound(fd, kind)?;
    if local.port() == 0 {
        return refuse("the socket is not bound");
    }
    Ok(local)
}

/// Checks and adopts a descriptor like [`adopt`], but accepts unbound sockets. The kernel removes
/// the addresses of a closed connection, although bytes may be unread.
///
/// # Errors
/// The descriptor is not an IP socket of this type.
pub(crate) fn adopt_unbound(fd: BorrowedFd<'_>, kind: c_int) -> io::Result<SocketAddr> {
    if option(fd, libc::SOL_SOCKET, libc::SO_TYPE)? != kind {
        return refuse("the socket is of another type");
    }
    match option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_INET | libc::AF_INET6 => {}
        _ => return refuse("the socket is of another family than IPv4 and IPv6"),
    }
    let local = bound_address(fd)?;
    // SAFETY: takes no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(local)
}

/// Checks and adopts a descriptor like [`adopt`], for sockets that receive packets or connections
/// from any address.
///
/// # Errors
/// [`adopt`] fails, or an IPv6 socket accepts IPv4 as well.
pub(crate) fn adopt_listening(fd: BorrowedFd<'_>, kind: c_int) -> io::Result<SocketAddr> {
    let local = adopt(fd, kind)?;
    if local.is_ipv6() && option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? == 0 {
        return refuse("the IPv6 socket takes IPv4 as well");
    }
    Ok(local)
}

/// Checks a descriptor of another process of this program, and returns the socket's address. The
/// descriptor was already received as close-on-exec. The blocking mode does not matter, because
/// calls request non-blocking operation explicitly.
///
/// # Errors
/// The descriptor is not an IP socket of this protocol, or the socket is not bound.
pub(crate) fn adopt_sibling(fd: BorrowedFd<'_>, protocol: c_int) -> io::Result<SocketAddr> {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? != protocol {
        return refuse("the socket is of another protocol");
    }
    let local = bound_address(fd)?;
    if local.port() == 0 { refuse("the socket is not bound") } else { Ok(local) }
}

/// Returns true if a socket belongs to the network namespace of the calling thread. Kernels before
/// Linux 5.14 do not identify namespaces, so the function returns true.
///
/// # Errors
/// The descriptor is not a socket, or the process has no descriptors left.
pub fn is_of_own_network(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let cookie = |fd| option_u64(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    match cookie(socket) {
        Ok(cookie_of_socket) => Ok(cookie_of_socket == cookie(UnixDatagram::unbound()?.as_fd())?),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Creates a pair of connected, non-blocking Unix sockets that preserve message boundaries
/// (`SOCK_SEQPACKET`). Unlike with datagram sockets, one end becomes readable when all descriptors
/// of the other end are closed.
///
/// # Errors
/// The process has no descriptors left.
pub fn message_pair() -> io::Result<[OwnedFd; 2]> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let mut ends = [0; 2];
    // SAFETY: `ends` has space for two descriptors and lives until the call returns.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so both descriptors are open. Nothing else owns them.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

fn refuse<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn sockets_of_another_network_namespace_are_recognised() {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_of_own_network(own.as_fd()).unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = is_of_own_network(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
        // The namespace of a thread is independent of other threads' namespaces.
        let other = std::thread::spawn(move || {
            let namespace = lab_net::new_network_namespace()?;
            lab_net::enter_network_namespace(&namespace)?;
            is_of_own_network(own.as_fd())
        });
        match other.join().unwrap() {
            Ok(is_own) => assert!(!is_own),
            Err(error) => test_support::skip(format!("no network namespaces here: {error}")),
        }
    }

    #[test]
    fn descriptors_of_other_kinds_are_refused() {
        let refused =
            |fd: BorrowedFd<'_>| adopt_listening(fd, libc::SOCK_DGRAM).unwrap_err().to_string();
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = adopt(file.as_fd(), libc::SOCK_DGRAM).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(refused(listener.as_fd()), "the socket is of another type");
        let unix = UnixDatagram::unbound().unwrap();
        let family = "the socket is of another family than IPv4 and IPv6";
        assert_eq!(refused(unix.as_fd()), family);
        let both = UdpSocket::bind("[::]:0").unwrap();
        assert_eq!(refused(both.as_fd()), "the IPv6 socket takes IPv4 as well");
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) }).unwrap();
        // SAFETY: the kernel has just returned this descriptor, which has no other owner.
        let unbound = unsafe { OwnedFd::from_raw_fd(fd) };
        assert_eq!(refused(unbound.as_fd()), "the socket is not bound");

        let sibling = |fd| adopt_sibling(fd, libc::IPPROTO_UDP).unwrap_err();
        assert_eq!(sibling(file.as_fd()).raw_os_error(), Some(libc::ENOTSOCK));
        assert_eq!(sibling(listener.as_fd()).to_string(), "the socket is of another protocol");
        assert_eq!(sibling(unix.as_fd()).to_string(), "the socket is of another protocol");
        assert_eq!(sibling(unbound.as_fd()).to_string(), "the socket is not bound");
    }
}
