//! Lookup of all UDP sockets on a port, of every process of the host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::netlink::{Request, Socket};

/// Message type `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;

/// Size of `struct inet_diag_req_v2` in bytes.
const REQUEST: usize = 56;

/// Size of `struct inet_diag_msg` in bytes.
const MESSAGE: usize = 72;

/// UDP socket of a process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortUser {
    /// Address and port that the socket is bound to.
    pub local: SocketAddr,
    /// Inode of the socket, equal for all descriptors of the socket.
    pub inode: u32,
}

/// Returns the UDP sockets of every process that are bound to a port, in this network namespace.
///
/// # Errors
/// The kernel does not provide the information, because the module `udp_diag` is missing.
pub fn users_of_udp_port(port: u16) -> io::Result<Vec<PortUser>> {
    let mut socket = Socket::open(libc::NETLINK_SOCK_DIAG)?;
    let mut users = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut header = [0; REQUEST];
        header[0] = family as u8;
        header[1] = libc::IPPROTO_UDP as u8;
        // Bitmap of the requested states: any state.
        header[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        header[8..10].copy_from_slice(&port.to_be_bytes());
        let answers = socket.ask(&Request::dump(BY_FAMILY, &header))?;
        users.extend(answers.iter().filter_map(|answer| read(answer)));
    }
    Ok(users)
}

fn read(answer: &[u8]) -> Option<PortUser> {
    let message: &[u8; MESSAGE] = answer.first_chunk()?;
    let port = u16::from_be_bytes([message[4], message[5]]);
    let ip: IpAddr = if i32::from(message[0]) == libc::AF_INET {
        Ipv4Addr::from(*message[8..].first_chunk::<4>()?).into()
    } else {
        Ipv6Addr::from(*message[8..].first_chunk::<16>()?).into()
    };
    let inode = u32::from_ne_bytes(*message[68..].first_chunk()?);
    Some(PortUser { local: SocketAddr::new(ip, port), inode })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn sockets_of_a_port_are_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let Ok(users) = users_of_udp_port(local.port()) else {
            return test_support::skip("the kernel lacks udp_diag");
        };
        let found: Vec<_> = users.iter().filter(|user| user.local == local).collect();
        assert!(matches!(found[..], [PortUser { inode: 1.., .. }]), "{users:?}");
        drop(socket);
        assert_eq!(users_of_udp_port(local.port()).unwrap().len(), users.len() - 1);
    }
}
