//! Selection of the devices that carry the server's traffic.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use linux_net::netlink::{self, Attribute, Request, Socket};
use turn_types::IpFamily;

use super::{Device, Kind};

/// Returns the indices of the devices in `devices` that carry the server's traffic. Except for the
/// loopback, such devices are:
///
/// - devices that own the address of a listener or of a relay,
/// - devices of default routes, in the families of these addresses.
///
/// An unspecified address is not compared with the addresses of devices, since that would select
/// the bridges of container engines as well. Instead, the devices of the default routes are
/// selected. If no family of an unspecified address has a default route, other devices represent
/// the address. These are all devices that are up and have an address of the family that is not
/// link-local.
///
/// A loopback address selects no device. Devices may be down, and of any kind except loopback.
///
/// # Errors
/// The kernel does not answer on netlink sockets, for example if a system call filter forbids such
/// sockets.
pub fn carrying(
    devices: &[Device],
    listeners: &[IpAddr],
    relays: &[IpAddr],
) -> io::Result<BTreeSet<u32>> {
    let host = Host { devices, addresses: addresses()?, defaults: default_routes()? };
    let wanted: Vec<IpAddr> = listeners.iter().chain(relays).map(IpAddr::to_canonical).collect();
    Ok(host.carrying(&wanted))
}

/// State of the kernel. Devices are identified by index.
struct Host<'a> {
    devices: &'a [Device],
    addresses: Vec<(u32, IpAddr)>,
    defaults: Vec<(u32, IpFamily)>,
}

impl Host<'_> {
    fn carrying(&self, wanted: &[IpAddr]) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::new();
        for family in IpFamily::ALL {
            let of_family = |ip: &&IpAddr| IpFamily::of(**ip) == family && !ip.is_loopback();
            if wanted.iter().any(|ip| of_family(&ip)) {
                numbers.extend(self.default_devices(family));
            }
        }
        let any: Vec<IpFamily> =
            wanted.iter().filter(|ip| ip.is_unspecified()).map(|ip| IpFamily::of(*ip)).collect();
        let has_default = any.iter().any(|family| self.default_devices(*family).next().is_some());
        for (number, address) in &self.addresses {
            let wildcard = any.contains(&IpFamily::of(*address))
                && !has_default
                && !is_link_local(*address)
                && self.is_up(*number);
            if wanted.contains(address) || wildcard {
                numbers.insert(*number);
            }
        }
        let carries =
            |device: &&Device| device.kind != Kind::Loopback && numbers.contains(&device.index);
        self.devices.iter().filter(carries).map(|device| device.index).collect()
    }

    fn default_devices(&self, family: IpFamily) -> impl Iterator<Item = u32> {
        self.defaults.iter().filter(move |(_, of)| *of == family).map(|(number, _)| *number)
    }

    fn is_up(&self, number: u32) -> bool {
        self.devices.iter().any(|device| device.index == number && device.up)
    }
}

/// Returns true if an address is link-local. Every IPv6 device has such an address, so link-local
/// addresses distinguish no device.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns all addresses, each with the index of the device. (`getifaddrs` returns labels instead
/// of devices.)
fn addresses() -> io::Result<Vec<(u32, IpAddr)>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let answers = socket.ask(&Request::dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER]))?;
    Ok(answers.iter().filter_map(|answer| read_address(answer)).collect())
}

/// Size of `struct ifaddrmsg` in bytes.
const ADDRESS_HEADER: usize = 8;

fn read_address(answer: &[u8]) -> Option<(u32, IpAddr)> {
    let (header, attributes) = answer.split_at_checked(ADDRESS_HEADER)?;
    let number = netlink::number(&header[4..])?;
    let mut local = None;
    let mut address = None;
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            libc::IFA_LOCAL => local = netlink::ip(value),
            libc::IFA_ADDRESS => address = netlink::ip(value),
            _ => {}
        }
    }
    // If both attributes exist, `address` is the remote address.
    Some((number, local.or(address)?))
}

/// Returns the devices of all default routes, from any routing table. Hosts with several uplinks
/// have a default route for each.
fn default_routes() -> io::Result<Vec<(u32, IpFamily)>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let answers = socket.ask(&Request::dump(libc::RTM_GETROUTE, &[0; ROUTE_HEADER]))?;
    Ok(answers.iter().flat_map(|answer| read_route(answer).unwrap_or_default()).collect())
}

/// Size in bytes of `struct rtmsg`, and of `struct rtnexthop`.
const ROUTE_HEADER: usize = 12;
const NEXT_HOP_HEADER: usize = 8;

/// Returns the devices of a default route. Returns `None` for other routes.
fn read_route(answer: &[u8]) -> Option<Vec<(u32, IpFamily)>> {
    let (header, attributes) = answer.split_at_checked(ROUTE_HEADER)?;
    let family = match libc::c_int::from(header[0]) {
        libc::AF_INET => IpFamily::V4,
        libc::AF_INET6 => IpFamily::V6,
        _ => return None,
    };
    let (destination_len, kind) = (header[1], header[7]);
    let flags = netlink::number(&header[8..])?;
    if destination_len != 0 || kind != libc::RTN_UNICAST || flags & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let mut numbers = Vec::new();
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            libc::RTA_OIF => numbers.extend(netlink::number(value)),
            libc::RTA_MULTIPATH => numbers.extend(next_hops(value)),
            _ => {}
        }
    }
    Some(numbers.into_iter().map(|number| (number, family)).collect())
}

/// Returns the devices of a route's next hops.
fn next_hops(mut bytes: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let header: &[u8; NEXT_HOP_HEADER] = bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let number = netlink::number(&header[4..])?;
        // The attribute is shorter than the length field. The remaining bytes are undefined.
        bytes.get(NEXT_HOP_HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(number)
    })
}

#[cfg(test)]
mod tests;
