//! Addresses of the host, sorted by suitability for a relay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux_net::{InterfaceAddress, source_address_towards};

/// Public addresses for queries of the routing table. No packets are sent to them.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
];

/// Returns every address that sockets can be bound to, most suitable first. Stable addresses
/// precede temporary addresses. Among them, source addresses towards the internet precede others.
/// Addresses of interfaces that are down are last.
pub(crate) fn usable(interfaces: Vec<InterfaceAddress>) -> Vec<IpAddr> {
    let sources = FAR_AWAY.into_iter().filter_map(|ip| source_address_towards(ip).ok());
    ordered(interfaces, &sources.collect::<Vec<_>>())
}

/// Sorts the addresses of interfaces by suitability. The kernel prefers temporary addresses as
/// `sources`, so a stable address of the same interface takes precedence.
fn ordered(mut interfaces: Vec<InterfaceAddress>, sources: &[IpAddr]) -> Vec<IpAddr> {
    interfaces.retain(|interface| interface.state.is_usable());
    let is_source = |interface: &&InterfaceAddress| sources.contains(&interface.address);
    let leads_out: Vec<String> =
        interfaces.iter().filter(is_source).map(|interface| interface.name.clone()).collect();
    interfaces.sort_by_key(|interface| {
        let InterfaceAddress { up, state, address, name, .. } = interface;
        (!up, *state, !sources.contains(address), !leads_out.contains(name))
    });
    let mut addresses: Vec<IpAddr> = Vec::new();
    for InterfaceAddress { address, .. } in interfaces {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use linux_net::AddressState;

    use super::*;

    fn on(name: &str, address: &str, state: AddressState) -> InterfaceAddress {
        let (loopback, up) = (name == "lo", name != "down0");
        InterfaceAddress { name: name.to_owned(), address: ip(address), loopback, up, state }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn order(interfaces: &[InterfaceAddress], sources: &[&str]) -> Vec<String> {
        let sources: Vec<IpAddr> = sources.iter().map(|text| ip(text)).collect();
        ordered(interfaces.to_vec(), &sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_address_that_others_see_comes_first() {
        let interfaces = [
            on("down0", "192.0.2.9", AddressState::Stable),
            on("lo", "127.0.0.1", AddressState::Stable),
            on("eth1", "10.0.0.1", AddressState::Stable),
            on("eth0", "10.1.0.1", AddressState::Stable),
        ];
        let expected = ["10.1.0.1", "127.0.0.1", "10.0.0.1", "192.0.2.9"];
        assert_eq!(order(&interfaces, &["10.1.0.1"]), expected);
    }

    /// A temporary address disappears within days, and interrupts its calls.
    #[test]
    fn an_address_that_lasts_is_preferred() {
        let interfaces = [
            on("eth1", "2001:db8:1::1", AddressState::Stable),
            on("eth0", "2001:db8::bad", AddressState::Duplicate),
            on("eth0", "2001:db8::7e", AddressState::Tentative),
            on("eth0", "2001:db8::01d", AddressState::Deprecated),
            on("eth0", "2001:db8::abcd", AddressState::Temporary),
            on("eth0", "2001:db8::1", AddressState::Stable),
        ];
        let expected = ["2001:db8::1", "2001:db8:1::1", "2001:db8::abcd", "2001:db8::1d"];
        assert_eq!(order(&interfaces, &["2001:db8::abcd"]), expected);
        assert_eq!(order(&interfaces[3..5], &["2001:db8::abcd"]), expected[2..]);
    }
}
