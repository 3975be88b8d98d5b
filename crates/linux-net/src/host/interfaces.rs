//! Addresses of the host's interfaces.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ptr;

use turn_types::IpFamily;

use crate::abi::address;
use crate::abi::sys::check;

/// An address of an interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The interface is the loopback.
    pub loopback: bool,
    /// The interface is up.
    pub up: bool,
}

/// All addresses of both families of all interfaces, in the kernel's order.
///
/// # Errors
/// Out of memory or descriptors.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is there for the library to write.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or a node of the list, which stays until it is freed below.
    while let Some(node) = unsafe { next.as_ref() } {
        // SAFETY: `node` is a node of the list.
        addresses.extend(unsafe { read(node) });
        next = node.ifa_next;
    }
    // SAFETY: `first` is the list that `getifaddrs` made, freed once; nothing refers to it now.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// The address that packets to `ip` would leave from, by the routes as they are. Sends nothing.
///
/// # Errors
/// `NetworkUnreachable` and the like when there is no route.
pub fn source_address_towards(ip: IpAddr) -> io::Result<IpAddr> {
    // Connecting a UDP socket looks the route up and sends nothing. The port does not matter, but
    // must not be 0.
    let socket = UdpSocket::bind((IpFamily::of(ip).unspecified(), 0))?;
    socket.connect((ip, 9))?;
    socket.local_addr().map(|local| local.ip())
}

/// The number of an interface of this network namespace.
///
/// # Errors
/// There is none of this name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: `name` is NUL-terminated, and the library does not keep it.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// # Safety
/// `node` must be of a list that `getifaddrs` made.
unsafe fn read(node: &libc::ifaddrs) -> Option<InterfaceAddress> {
    if node.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: not null, so it points at a socket address, which has a family at least.
    let family = unsafe { (*node.ifa_addr).sa_family };
    let len = match libc::c_int::from(family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an address of that family has this length.
    let raw = unsafe { std::slice::from_raw_parts(node.ifa_addr.cast::<u8>(), len) };
    // SAFETY: every node has a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(node.ifa_name) };
    let flag = |wanted: libc::c_int| node.ifa_flags & wanted as libc::c_uint != 0;
    Some(InterfaceAddress {
        name: name.to_string_lossy().into_owned(),
        address: address::decode(raw).as_ref().map(SocketAddr::ip)?,
        loopback: flag(libc::IFF_LOOPBACK),
        up: flag(libc::IFF_UP),
    })
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
