//! Network interfaces of the host, and their addresses.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::net::{IpAddr, UdpSocket};

use turn_types::IpFamily;

use crate::netlink::{self, Request, Socket, attributes};

/// Size of `struct ifinfomsg` in bytes.
const LINK_HEADER: usize = 16;

/// Size of `struct ifaddrmsg` in bytes.
const ADDRESS_HEADER: usize = 8;

/// Address of a network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub name: String,
    /// IP address of the interface.
    pub address: IpAddr,
    /// True if the interface is the loopback.
    pub loopback: bool,
    /// True if the interface is up.
    pub up: bool,
    /// Lifetime of the address.
    pub state: AddressState,
}

/// Lifetime of an address (RFC 4862 §5.5.4), sorted by decreasing lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressState {
    /// The address is valid while the interface has the prefix.
    Stable,
    /// The address is replaced within days, to protect the privacy of users (RFC 8981).
    Temporary,
    /// The address serves only connections that already use it.
    Deprecated,
    /// The address is unusable until duplicate address detection has finished.
    Tentative,
    /// The address is unusable, because another host has it.
    Duplicate,
}

impl AddressState {
    /// Returns true if sockets can be bound to the address.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Stable | Self::Temporary | Self::Deprecated)
    }

    /// Converts address flags of linux/if_addr.h.
    fn of(family: IpFamily, flags: u32) -> Self {
        let has = |flag: u32| flags & flag != 0;
        if has(libc::IFA_F_DADFAILED) {
            Self::Duplicate
        } else if has(libc::IFA_F_TENTATIVE) && !has(libc::IFA_F_OPTIMISTIC) {
            Self::Tentative
        } else if has(libc::IFA_F_DEPRECATED) {
            Self::Deprecated
        } else if matches!(family, IpFamily::V6) && has(libc::IFA_F_TEMPORARY) {
            // For IPv4 this bit marks further addresses of a network.
            Self::Temporary
        } else {
            Self::Stable
        }
    }
}

/// Returns all addresses of both families of all interfaces, in the kernel's order.
///
/// # Errors
/// The kernel does not answer on netlink sockets, or the lists keep changing during the read.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let links = socket.ask(&Request::dump(libc::RTM_GETLINK, &[0; LINK_HEADER]))?;
    let links: HashMap<u32, Link> = links.iter().filter_map(|answer| Link::read(answer)).collect();
    let addresses = socket.ask(&Request::dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER]))?;
    let read = |answer: &Vec<u8>| {
        let (index, address, state) = read_address(answer)?;
        // The interface may have been added after the list of interfaces was read.
        let Link { name, flags } = links.get(&index)?;
        let flag = |wanted: libc::c_int| flags & wanted as u32 != 0;
        let (loopback, up) = (flag(libc::IFF_LOOPBACK), flag(libc::IFF_UP));
        Some(InterfaceAddress { name: name.clone(), address, loopback, up, state })
    };
    Ok(addresses.iter().filter_map(read).collect())
}

/// Network interface.
struct Link {
    name: String,
    /// Flags of the interface (`IFF_*`).
    flags: u32,
}

impl Link {
    /// Reads an `RTM_NEWLINK` message. Returns the index of the interface, and name and flags.
    fn read(answer: &[u8]) -> Option<(u32, Self)> {
        let header: &[u8; LINK_HEADER] = answer.first_chunk()?;
        let [index, flags] = [4, 8].map(|at| netlink::number(&header[at..]));
        let name = attributes(&answer[LINK_HEADER..])
            .find(|attribute| attribute.kind == libc::IFLA_IFNAME)?;
        Some((index?, Self { name: netlink::text(name.value), flags: flags? }))
    }
}

/// Reads an `RTM_NEWADDR` message. Returns the index of the interface, the address and the state of
/// the address.
fn read_address(answer: &[u8]) -> Option<(u32, IpAddr, AddressState)> {
    let header: &[u8; ADDRESS_HEADER] = answer.first_chunk()?;
    let index = netlink::number(&header[4..])?;
    let (mut flags, mut local, mut address) = (u32::from(header[2]), None, None);
    for attribute in attributes(&answer[ADDRESS_HEADER..]) {
        match attribute.kind {
            libc::IFA_FLAGS => flags = netlink::number(attribute.value)?,
            libc::IFA_LOCAL => local = netlink::ip(attribute.value),
            libc::IFA_ADDRESS => address = netlink::ip(attribute.value),
            _ => {}
        }
    }
    // On a point-to-point link `IFA_ADDRESS` is the address of the peer.
    let address = local.or(address)?;
    Some((index, address, AddressState::of(IpFamily::of(address), flags)))
}

/// Returns the source address of packets to `ip`, according to the present routes. Sends nothing.
///
/// # Errors
/// No route exists. Returns `NetworkUnreachable` or a similar error.
pub fn source_address_towards(ip: IpAddr) -> io::Result<IpAddr> {
    // Connecting a UDP socket looks up the route and sends nothing. The port does not matter, but
    // must not be 0.
    let socket = UdpSocket::bind((IpFamily::of(ip).unspecified(), 0))?;
    socket.connect((ip, 9))?;
    socket.local_addr().map(|local| local.ip())
}

/// Returns the index of an interface of this network namespace.
///
/// # Errors
/// No interface has this name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: `name` is NUL-terminated, and the library does not retain the pointer.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_loopback_is_among_the_interfaces() {
        let all = interface_addresses().unwrap();
        let found = all.iter().find(|a| a.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(found.loopback && found.up && found.name == "lo", "{found:?}");
    }

    /// Builds an address message (`RTM_NEWADDR`).
    fn message(flags: u32, address: IpAddr, local: Option<IpAddr>) -> Vec<u8> {
        let mut bytes = vec![0, 24, flags as u8, 0];
        bytes.extend(7_u32.to_ne_bytes());
        let octets = |ip| match ip {
            IpAddr::V4(v4) => Ipv4Addr::octets(&v4).to_vec(),
            IpAddr::V6(v6) => Ipv6Addr::octets(&v6).to_vec(),
        };
        let mut add = |kind: u16, value: &[u8]| {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
        };
        add(libc::IFA_ADDRESS, &octets(address));
        local.iter().for_each(|local| add(libc::IFA_LOCAL, &octets(*local)));
        add(libc::IFA_FLAGS, &flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn the_state_of_an_address_is_read() {
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let state = |flags, ip| read_address(&message(flags, ip, None)).unwrap().2;
        let (permanent, temporary) = (libc::IFA_F_PERMANENT, libc::IFA_F_TEMPORARY);
        assert_eq!(state(permanent, v6), AddressState::Stable);
        assert_eq!(state(temporary, v6), AddressState::Temporary);
        assert_eq!(state(permanent | temporary, v4), AddressState::Stable, "a second address");
        assert_eq!(state(temporary | libc::IFA_F_DEPRECATED, v6), AddressState::Deprecated);
        assert_eq!(state(libc::IFA_F_TENTATIVE, v6), AddressState::Tentative);
        let optimistic = libc::IFA_F_TENTATIVE | libc::IFA_F_OPTIMISTIC;
        assert_eq!(state(optimistic, v6), AddressState::Stable);
        let failed = libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED;
        assert_eq!(state(failed, v6), AddressState::Duplicate);
        assert!(!state(failed, v6).is_usable());
    }

    #[test]
    fn of_two_ends_of_a_link_the_own_one_counts() {
        let [own, peer]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let whole = message(0, peer, Some(own));
        assert_eq!(read_address(&whole), Some((7, own, AddressState::Stable)));
        for len in 0..ADDRESS_HEADER {
            assert_eq!(read_address(&whole[..len]), None, "cut short to {len}");
        }
    }

    #[test]
    fn interfaces_have_numbers() {
        assert!(interface_index("lo").unwrap() > 0);
        assert!(interface_index("no such interface").is_err());
        assert!(interface_index("lo\0").is_err());
    }

    #[test]
    fn the_loopback_is_reached_from_itself() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert_eq!(source_address_towards(ip).unwrap(), ip);
        }
    }
}
