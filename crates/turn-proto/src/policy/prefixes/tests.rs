use std::collections::BTreeSet;
use std::net::IpAddr;
use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;
use turn_types::{RelayProtocol, WorkerId};

use super::*;

fn prefix(network: &str, workers: u16) -> RelayPrefix {
    RelayPrefix::new(network.parse().unwrap(), 50_000, workers).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn networks_and_ports_that_do_not_fit_are_refused() {
    let new = |network: &str, port, workers| {
        RelayPrefix::new(network.parse().unwrap(), port, workers).map(drop)
    };
    assert_eq!(new("2001:db8::/112", 50_000, 4), Ok(()));
    assert_eq!(new("2001:db8::/113", 50_000, 4), Err(RelayPrefixError::TooLong));
    assert_eq!(new("2001:db8::/32", 50_000, 4), Ok(()));
    assert_eq!(new("2001::/31", 50_000, 4), Err(RelayPrefixError::TooShort));
    assert_eq!(new("192.0.2.0/30", 50_000, 4), Ok(()));
    assert_eq!(new("192.0.2.0/31", 50_000, 4), Err(RelayPrefixError::TooLong));
    assert_eq!(new("10.0.0.0/7", 50_000, 4), Err(RelayPrefixError::TooShort));
    assert_eq!(new("192.0.2.0/24", 50_001, 1), Err(RelayPrefixError::Ports), "an odd port");
    assert_eq!(new("192.0.2.0/24", 65_534, 1), Ok(()));
    assert_eq!(new("192.0.2.0/24", 65_534, 2), Err(RelayPrefixError::Ports));
}

#[test]
fn every_address_of_a_small_network_is_given_once_to_each_worker() {
    let network = prefix("192.0.2.0/29", 2);
    assert_eq!(network.capacity(), 12, "not the first and the last");
    for worker in [0, 1].map(WorkerId) {
        let mut held = Vec::new();
        while let Some(claimed) = network.claim(worker, PortRequirement::Any, u128::MAX / 7) {
            assert_eq!(claimed.at.port(), 50_000 + 2 * worker.0);
            held.push((claimed.at.ip(), claimed.lease));
        }
        let given: BTreeSet<_> = held.iter().map(|(ip, _)| ip.to_string()).collect();
        let all: BTreeSet<_> = (1..=6).map(|host| std::format!("192.0.2.{host}")).collect();
        assert_eq!(given, all);
        assert_eq!(network.used(), 6);
    }
    assert_eq!(network.used(), 0, "leases give back");
    assert!(network.claim(WorkerId(2), PortRequirement::Any, 1).is_none(), "no such worker");
}

#[test]
fn addresses_of_a_subnet_are_of_it_and_tell_nothing_of_each_other() {
    let network = prefix("2001:db8:1:2::/64", 1);
    assert_eq!(network.capacity(), 4 * 65_536 - 1);
    let mut held = Vec::new();
    for random in 0..1000_u128 {
        let random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let claimed = network.claim(WorkerId(0), PortRequirement::Even, random).unwrap();
        assert!(network.contains(claimed.at.ip()), "{}", claimed.at);
        assert_eq!(claimed.at.port(), 50_000);
        held.push((claimed.at.ip(), claimed.lease));
    }
    let given: BTreeSet<_> = held.iter().map(|(ip, _)| *ip).collect();
    assert_eq!(given.len(), 1000);
    let numbers: BTreeSet<_> = given.iter().map(|ip| network.number_of(*ip)).collect();
    assert_eq!(numbers.len(), 1000, "the numbers alone differ");
}

/// A relayed address reveals no other relayed address.
#[test]
fn numbers_are_drawn_and_not_counted() {
    let network = prefix("10.0.0.0/8", 1);
    let mut held = Vec::new();
    let mut number = |random| {
        let claimed = network.claim(WorkerId(0), PortRequirement::Any, random).unwrap();
        let number = network.number_of(claimed.at.ip());
        held.push(claimed);
        number
    };
    // The table, and the slot in the table.
    let tables: Vec<_> = (0..8).map(|n: u32| number(u128::from(n) << 80) >> 16).collect();
    assert_eq!(tables, [0, 1, 2, 3, 0, 1, 2, 3]);
    let draw = |n: u32| u128::from(n.wrapping_mul(0x9E37_79B9)) << 96;
    let places: Vec<_> = (1..=100).map(|n| i64::from(number(draw(n)) & 0xFFFF)).collect();
    let neighbours = places.windows(2).filter(|two| (two[1] - two[0]).abs() < 100).count();
    assert!(neighbours < 10, "{places:?}");

    let (wide, worker) = (prefix("2001:db8:1:2::/64", 1), WorkerId(0));
    let above = |random: u128| {
        let claimed = wide.claim(worker, PortRequirement::Any, random).unwrap();
        let IpAddr::V6(ip) = claimed.at.ip() else { panic!("{}", claimed.at) };
        ip.to_bits() as u64 >> 18
    };
    assert_eq!([1, 0x1234_5678, (1 << 46) - 1].map(above), [1, 0x1234_5678, (1 << 46) - 1]);
}

#[test]
fn a_relay_is_open_at_its_port_alone() {
    let network = prefix("2001:db8::/64", 2);
    let worker = WorkerId(1);
    let first = network.claim(worker, PortRequirement::EvenWithNext, 5 << 100).unwrap();
    let number = network.number_of(first.at.ip());
    let open = |port| network.is_open(number, port, RelayProtocol::Udp);
    let ports = || (49_990..50_010).chain([0, 22, u16::MAX]).filter(|port| open(*port));
    assert_eq!(ports().count(), 0, "claimed, not open");
    first.lease.mark_open(RelayProtocol::Udp);
    assert!(ports().eq([50_002]));
    let next = first.next.unwrap();
    next.mark_open(RelayProtocol::Udp);
    assert!(ports().eq([50_002, 50_003]));
    drop(first.lease);
    assert!(ports().eq([50_003]), "the second of a pair stays");
    drop(next);
    let listening = network.claim(worker, PortRequirement::Any, 5 << 100).unwrap();
    listening.lease.mark_open(RelayProtocol::Tcp);
    let number = network.number_of(listening.at.ip());
    assert!(network.is_open(number, 50_002, RelayProtocol::Tcp));
    assert!(!network.is_open(number, 50_002, RelayProtocol::Udp));
}

#[test]
fn a_pair_is_not_given_while_its_next_port_is_held() {
    let network = prefix("192.0.2.0/30", 1);
    let pair = |random| network.claim(WorkerId(0), PortRequirement::EvenWithNext, random);
    let (one, two) = (pair(1).unwrap(), pair(2).unwrap());
    assert!(pair(3).is_none(), "both addresses are in use");
    let (kept, other) = (one.next.unwrap(), two.at);
    drop((one.lease, two));
    for random in 0..100 {
        let again = pair(random << 96).unwrap();
        assert_eq!(again.at, other, "the next port of the first is in use");
    }
    drop(kept);
}

#[test]
fn leases_belong_to_their_prefix() {
    let (one, other) = (prefix("2001:db8::/64", 1), prefix("2001:db8::/64", 1));
    let claimed = one.claim(WorkerId(0), PortRequirement::EvenWithNext, 1).unwrap();
    let next = claimed.next.unwrap();
    assert!(one.has_lease(&claimed.lease) && one.has_lease(&next));
    assert!(!other.has_lease(&claimed.lease) && !other.has_lease(&next));
    assert!(!one.contains(ip("192.0.2.1")) && one.contains(ip("2001:db8::ffff:1")));
    assert!(one == one.clone() && one != other);
    let ports = [0, 1, 2].map(|worker| prefix("2001:db8::/64", 2).port_of(WorkerId(worker)));
    assert_eq!(ports, [Some(50_000), Some(50_002), None]);
}

proptest! {
    /// The number read from an address is the number that the address was made of, for any prefix
    /// length.
    #[test]
    fn numbers_are_read_back(v6 in any::<bool>(), len in 8_u8..=112, random in any::<u128>()) {
        let network = if v6 {
            std::format!("2000::/{}", len.max(32))
        } else {
            std::format!("10.0.0.0/{}", 8 + len % 23)
        };
        let network = prefix(&network, 3);
        let claimed = network.claim(WorkerId(2), PortRequirement::Any, random).unwrap();
        prop_assert!(network.contains(claimed.at.ip()));
        claimed.lease.mark_open(RelayProtocol::Udp);
        let number = network.number_of(claimed.at.ip());
        prop_assert!(network.is_open(number, claimed.at.port(), RelayProtocol::Udp));
        prop_assert_eq!(claimed.lease.port(), number as u16);
    }
}
