//! Addresses of the host, in the order that suits a relay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux_net::{interface_addresses, source_address_towards};

use crate::failure::{OrFail as _, Result};

/// Addresses in the public internet, to ask the routing table about. Nothing is sent to them.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
];

/// Every address of this host: the ones it reaches others from first, the ones of interfaces that
/// are down last.
pub(crate) fn addresses() -> Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> =
        FAR_AWAY.into_iter().filter_map(|ip| source_address_towards(ip).ok()).collect();
    let mut interfaces = interface_addresses().or_fail("cannot list the addresses of this host")?;
    interfaces.sort_by_key(|interface| !interface.up);
    for interface in interfaces {
        if !addresses.contains(&interface.address) {
            addresses.push(interface.address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_one_of_ours() {
        assert!(addresses().unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
