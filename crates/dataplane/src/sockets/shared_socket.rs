//! Socket that the relays of a prefix share.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linux_net::UdpSocket;
use turn_proto::Policy;
use turn_types::{IpFamily, WorkerId};

use super::NetOptions;
use super::listener::inherit_at;
use crate::io::{Kernel, Net, UdpIo as _};

/// Socket of one worker for all relays of a family's prefixes.
#[derive(Debug)]
pub struct SharedSocket<N: Net = Kernel>(N::Udp);

impl SharedSocket {
    /// Returns the addresses of the sockets that a worker needs. Each is the unspecified address of
    /// a family, with the worker's port for the family's prefixes.
    pub fn addresses(policy: &Policy, worker: WorkerId) -> impl Iterator<Item = SocketAddr> {
        IpFamily::ALL.iter().filter_map(move |family| {
            let mut prefixes = policy.prefixes.iter().filter(|one| one.family() == *family);
            let port = prefixes.next()?.port_of(worker)?;
            let ip = match family {
                IpFamily::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpFamily::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            Some(SocketAddr::new(ip, port))
        })
    }

    /// Opens a socket at one of the [addresses](Self::addresses). No other program may use the
    /// port, because other sockets of the same user could share the port.
    ///
    /// # Errors
    /// The errors of `bind` are returned.
    pub fn bind(at: SocketAddr, net: &NetOptions) -> io::Result<Self> {
        UdpSocket::bind_unasked(at, &net.of_shared_relays()).map(Self)
    }

    /// Adopts the socket of the predecessor at this address.
    ///
    /// # Errors
    /// The socket is invalid or has another address.
    pub fn inherit(fd: OwnedFd, at: SocketAddr, net: &NetOptions) -> io::Result<Self> {
        inherit_at(fd, at, &net.of_shared_relays()).map(Self)
    }
}

impl<N: Net> SharedSocket<N> {
    /// Wraps a bound socket.
    #[must_use]
    pub const fn over(socket: N::Udp) -> Self {
        Self(socket)
    }

    /// Returns the local address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    pub(super) fn into_socket(self) -> N::Udp {
        self.0
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
