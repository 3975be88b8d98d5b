use super::super::devices;
use super::super::testing::{Namespace, namespace};
use super::*;

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns the names of devices, sorted.
fn names_of(indices: BTreeSet<u32>, host: &Namespace) -> Vec<String> {
    let all = host.run(|| devices().unwrap());
    let found = all.into_iter().filter(|device| indices.contains(&device.index));
    let mut names: Vec<String> = found.map(|device| device.name).collect();
    names.sort();
    names
}

#[test]
fn devices_that_own_an_address_or_lead_out() {
    let Some(host) = namespace() else { return };
    // A card with the default route, a second card with another address, two bridges of containers,
    // a VLAN with a label for a name, an address routed to the loopback, a tunnel.
    host.ip("link set lo up
        addr add 203.0.113.9/32 dev lo
        link add out0 type veth peer name out0x
        addr add 192.0.2.2/24 dev out0
        addr add 2001:db8:1::2/64 dev out0 nodad
        link add in0 type veth peer name in0x
        addr add 198.51.100.2/24 dev in0 label in0:relay
        link add docker0 type bridge
        addr add 172.17.0.1/16 dev docker0
        link add docker1 type bridge
        addr add fd17::1/64 dev docker1 nodad
        tuntap add name tun0 mode tun
        addr add 10.9.0.1 peer 10.9.0.2 dev tun0
        link set out0x up
        link set out0 up
        link set in0x up
        link set in0 up
        link set docker0 up
        link set docker1 up
        link set tun0 up");
    let carrying = |listeners: &[&str], relays: &[&str]| {
        let (listeners, relays) = (ips(listeners), ips(relays));
        names_of(host.run(|| carrying(&devices().unwrap(), &listeners, &relays).unwrap()), &host)
    };

    // Without a default route, a wildcard selects all devices with addresses of the family.
    assert_eq!(carrying(&["0.0.0.0"], &[]), ["docker0", "in0", "out0", "tun0"]);
    assert_eq!(carrying(&["::"], &[]), ["docker1", "out0"]);
    host.ip("link set docker0 down");
    assert_eq!(carrying(&["0.0.0.0"], &["192.0.2.2"]), ["in0", "out0", "tun0"]);
    assert_eq!(carrying(&["198.51.100.2"], &["198.51.100.2"]), ["in0"]);

    // With a default route, a wildcard selects the device of the default route.
    host.ip("link set docker0 up
        route add default via 192.0.2.1");
    assert_eq!(carrying(&["0.0.0.0"], &[]), ["out0"]);
    assert_eq!(carrying(&["0.0.0.0", "::"], &["198.51.100.2"]), ["in0", "out0"]);
    assert_eq!(carrying(&["198.51.100.2"], &[]), ["in0", "out0"]);
    assert_eq!(carrying(&["::ffff:198.51.100.2"], &[]), ["in0", "out0"]);
    // The address of a tunnel is the local address, not the remote address.
    assert_eq!(carrying(&["10.9.0.1"], &[]), ["out0", "tun0"]);
    assert_eq!(carrying(&["10.9.0.2"], &[]), ["out0"]);
    // Packets to an address of the loopback arrive by the default route's device. The loopback
    // itself is not selected.
    assert_eq!(carrying(&["203.0.113.9"], &[]), ["out0"]);
    assert_eq!(carrying(&["127.0.0.1", "::1"], &["127.0.0.1"]), [""; 0]);
    // IPv6 has another default route.
    assert_eq!(carrying(&["fd17::1"], &[]), ["docker1"]);
    host.ip("-6 route add default via fd17::9 dev docker1");
    assert_eq!(carrying(&["::"], &[]), ["docker1"]);
    assert_eq!(carrying(&["2001:db8:1::2"], &["192.0.2.2"]), ["docker1", "out0"]);
}

#[test]
fn ways_out_of_every_table_and_shape() {
    let Some(host) = namespace() else { return };
    host.ip("link add a0 type veth peer name a0x
        link add b0 type veth peer name b0x
        link add c0 type veth peer name c0x
        addr add 192.0.2.2/24 dev a0
        addr add 198.51.100.2/24 dev b0
        addr add 203.0.113.2/24 dev c0
        addr add 2001:db8:1::2/64 dev a0 nodad
        addr add 2001:db8:2::2/64 dev b0 nodad
        link set a0x up
        link set a0 up
        link set b0x up
        link set b0 up
        link set c0x up
        link set c0 up");
    let names = |listener: &str| {
        let listener = ips(&[listener]);
        names_of(host.run(|| carrying(&devices().unwrap(), &listener, &[]).unwrap()), &host)
    };
    host.ip("route add default nexthop via 192.0.2.1 nexthop via 198.51.100.1
        -6 route add default nexthop via 2001:db8:1::1 nexthop via 2001:db8:2::1");
    assert_eq!(names("0.0.0.0"), ["a0", "b0"]);
    assert_eq!(names("::"), ["a0", "b0"]);
    host.ip("route del default
        route add default via 192.0.2.1
        route add default via 203.0.113.1 table 100
        route add unreachable default metric 4278198272");
    assert_eq!(names("0.0.0.0"), ["a0", "c0"]);
    // Neither a route to a network nor a default route without a device selects a device.
    host.ip("route flush table 100
        route del default via 192.0.2.1
        route add 10.0.0.0/8 via 198.51.100.1");
    assert_eq!(names("198.51.100.2"), ["b0"]);
    // Next hops as separate objects.
    host.ip("nexthop add id 1 via 198.51.100.1 dev b0
        nexthop add id 2 via 203.0.113.1 dev c0
        nexthop add id 3 group 1/2
        route add default nhid 3");
    assert_eq!(names("0.0.0.0"), ["b0", "c0"]);
}

#[test]
fn a_truncated_answer_is_less_or_nothing() {
    let mut route = vec![0; ROUTE_HEADER];
    route[0] = libc::AF_INET as u8;
    route[7] = libc::RTN_UNICAST;
    let hop = |number: u32| [&[8, 0, 0, 0][..], &number.to_ne_bytes()].concat();
    let hops = [hop(3), hop(4)].concat();
    route.extend((4 + hops.len() as u16).to_ne_bytes());
    route.extend(libc::RTA_MULTIPATH.to_ne_bytes());
    route.extend(&hops);
    assert_eq!(read_route(&route), Some(vec![(3, IpFamily::V4), (4, IpFamily::V4)]));
    for len in 0..route.len() {
        assert!(read_route(&route[..len]).is_none_or(|numbers| numbers.is_empty()), "{len}");
    }
    assert_eq!(next_hops(&hops[..12]).count(), 1);
    // A length that is shorter than the header must not cause an infinite loop.
    assert_eq!(next_hops(&[0; 64]).count(), 0);
    assert_eq!(next_hops(&[0xff; 64]).count(), 0);

    let mut address = vec![0; ADDRESS_HEADER];
    address[4..].copy_from_slice(&7_u32.to_ne_bytes());
    address.extend([8, 0, libc::IFA_ADDRESS as u8, 0, 192, 0, 2, 1]);
    assert_eq!(read_address(&address), Some((7, "192.0.2.1".parse().unwrap())));
    for len in 0..address.len() {
        assert_eq!(read_address(&address[..len]), None);
    }
}
