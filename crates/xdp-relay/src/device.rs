//! Network devices, and their support for the kernel path.
//!
//! All functions concern the network namespace of the calling thread, at the moment of the call.
//! Devices are added, removed and changed at any time. [`devices`] lists the devices.
//! [`carrying()`] selects the devices of the server's traffic. [`choose`] selects the hooks for a
//! device. [`may_leave`] checks outbound support. [`forwarding`] enables look-ups of next hops.
//! [`missing_capabilities`] names the capabilities that the process lacks.

mod carrying;
mod choice;
pub mod forwarding;
pub(crate) mod leftovers;
pub(crate) mod presence;
mod privilege;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::HashMap;
use std::io;

use linux_net::netlink::{self, Attribute, Request, Socket};

pub use carrying::carrying;
pub use choice::{Choice, Hook, NATIVE_MTU_MAX, choose, may_leave};
pub use privilege::{kernel_is_older_than, kernel_release, missing_capabilities};

/// Network device of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the device, as shown by `ip link`.
    pub name: String,
    /// Index of the device in this network namespace, at least 1.
    pub index: u32,
    /// Link-layer address. Zeros if the device has no address, or an address with another length.
    pub mac: [u8; 6],
    /// Maximum length of a sent packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// True if the device is administratively up. A carrier may be missing.
    pub up: bool,
    /// Kind of the device.
    pub kind: Kind,
    /// True if the device is a port of a bridge, a bond or a similar device. Routes lead to that
    /// device, not to the port.
    pub port: bool,
    /// True if the device is one end of a pair, made by Linux's driver `veth`.
    pub veth: bool,
    /// XDP features of the driver. `None` if the kernel does not report features (before Linux
    /// 6.3).
    pub xdp: Option<XdpFeatures>,
}

/// Kind of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The loopback device.
    Loopback,
    /// The device is a network card, real or provided by a hypervisor, with Ethernet frames.
    Physical,
    /// The device is made by software of this host, with Ethernet frames: veth, bridge, VLAN, bond,
    /// macvlan, tap and similar.
    Virtual,
    /// The packets of the device have no Ethernet header: tun, WireGuard, PPP.
    NotEthernet,
}

/// XDP features of a device's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures {
    /// True if the driver runs programs, and drops or passes packets according to the result.
    pub basic: bool,
    /// True if programs may redirect packets from this device to other devices.
    pub redirect: bool,
    /// True if the device can now send packets that programs of other devices redirect. Many
    /// drivers can do so only while a program is attached to the device. A veth can do so only
    /// while the peer accepts complete frames (a program on the peer, or `ethtool -K PEER gro on`).
    pub ndo_xmit: bool,
    /// All feature bits as reported by the kernel (`enum netdev_xdp_act`).
    pub bits: u64,
}

impl XdpFeatures {
    /// Decodes the bits of `enum netdev_xdp_act`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        const BASIC: u64 = 1 << 0;
        const REDIRECT: u64 = 1 << 1;
        const NDO_XMIT: u64 = 1 << 2;
        Self {
            basic: bits & BASIC != 0,
            redirect: bits & REDIRECT != 0,
            ndo_xmit: bits & NDO_XMIT != 0,
            bits,
        }
    }
}

/// Returns all devices of this network namespace, sorted by index.
///
/// # Errors
/// The kernel does not answer on netlink sockets, for example if a system call filter forbids such
/// sockets.
pub fn devices() -> io::Result<Vec<Device>> {
    let mut devices = links()?;
    if let Some(features) = xdp_features()? {
        for device in &mut devices {
            device.xdp = features.get(&device.index).copied();
        }
    }
    Ok(devices)
}

/// Returns all devices, without the XDP features of the drivers.
fn links() -> io::Result<Vec<Device>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let answers = socket.ask(&Request::dump(libc::RTM_GETLINK, &[0; LINK_HEADER]))?;
    let mut devices: Vec<Device> = answers.iter().filter_map(|answer| read_link(answer)).collect();
    devices.sort_by_key(|device| device.index);
    Ok(devices)
}

/// Size of `struct ifinfomsg` in bytes.
const LINK_HEADER: usize = 16;

/// Attribute of linux/if_link.h: the kind of device that a port belongs to.
const IFLA_INFO_SLAVE_KIND: u16 = 4;

/// Decodes a device from an answer to `RTM_GETLINK`.
fn read_link(answer: &[u8]) -> Option<Device> {
    let (header, attributes) = answer.split_at_checked(LINK_HEADER)?;
    let hardware = u16::from_ne_bytes(*header[2..].first_chunk()?);
    let index = u32::from_ne_bytes(*header[4..].first_chunk()?);
    let flags = u32::from_ne_bytes(*header[8..].first_chunk()?);
    let flag = |wanted: libc::c_int| flags & wanted.cast_unsigned() != 0;

    let mut name = None;
    let mut mac = [0; 6];
    let mut mtu = 0;
    let mut made_by_software = false;
    let mut port = false;
    let mut veth = false;
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            libc::IFLA_IFNAME => name = Some(netlink::text(value)),
            libc::IFLA_ADDRESS => mac = value.try_into().unwrap_or(mac),
            libc::IFLA_MTU => mtu = netlink::number(value)?,
            libc::IFLA_LINKINFO => {
                for Attribute { kind, value } in netlink::attributes(value) {
                    made_by_software |= kind == libc::IFLA_INFO_KIND;
                    veth |= kind == libc::IFLA_INFO_KIND && netlink::text(value) == "veth";
                    // Ports of a VRF have separate routes.
                    port |= kind == IFLA_INFO_SLAVE_KIND && netlink::text(value) != "vrf";
                }
            }
            _ => {}
        }
    }
    let kind = if flag(libc::IFF_LOOPBACK) {
        Kind::Loopback
    } else if hardware != libc::ARPHRD_ETHER {
        Kind::NotEthernet
    } else if made_by_software {
        Kind::Virtual
    } else {
        Kind::Physical
    };
    let up = flag(libc::IFF_UP);
    Some(Device { name: name?, index, mac, mtu, up, kind, port, veth, xdp: None })
}

// Constants of linux/netdev.h.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// Returns the XDP features of each device's driver, by device index. Returns `None` if the kernel
/// does not report features.
fn xdp_features() -> io::Result<Option<HashMap<u32, XdpFeatures>>> {
    let mut socket = Socket::open(libc::NETLINK_GENERIC)?;
    let Some(family) = generic_family(&mut socket, "netdev")? else { return Ok(None) };
    let answers =
        socket.ask(&Request::dump(family, &netlink::generic_header(NETDEV_CMD_DEV_GET)))?;
    Ok(Some(answers.iter().filter_map(|answer| read_features(answer)).collect()))
}

fn read_features(answer: &[u8]) -> Option<(u32, XdpFeatures)> {
    let (_, attributes) = answer.split_at_checked(netlink::GENERIC_HEADER)?;
    let mut index = None;
    let mut bits = None;
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            NETDEV_A_DEV_IFINDEX => index = netlink::number(value),
            NETDEV_A_DEV_XDP_FEATURES => bits = value.try_into().map(u64::from_ne_bytes).ok(),
            _ => {}
        }
    }
    Some((index?, XdpFeatures::from_bits(bits?)))
}

/// Returns the number of a generic netlink family, or `None` if this kernel has no family with the
/// name.
fn generic_family(socket: &mut Socket, name: &str) -> io::Result<Option<u16>> {
    const GET_FAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
    const CONTROL: u16 = libc::GENL_ID_CTRL as u16;
    const NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
    const ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
    let mut request = Request::one(CONTROL, &netlink::generic_header(GET_FAMILY));
    request.attribute_text(NAME, name);
    let answers = match socket.ask(&request) {
        Ok(answers) => answers,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let id = answers.iter().find_map(|answer| {
        let (_, attributes) = answer.split_at_checked(netlink::GENERIC_HEADER)?;
        let id = netlink::attributes(attributes).find(|attribute| attribute.kind == ID)?;
        Some(u16::from_ne_bytes(*id.value.first_chunk()?))
    });
    Ok(id)
}

#[cfg(test)]
mod tests;
