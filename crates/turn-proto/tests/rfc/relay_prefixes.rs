//! Relayed addresses of a routed prefix. The rules of RFC 8656 about ports apply to addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use stun_wire::Method;
use turn_proto::{DropReason, EndReason, PeerRules, Policy, Refusal, RelayPrefix};
use turn_types::Prefix;

use crate::support::tcp::alice;
use crate::support::*;

/// A documentation network that is delivered to the server.
const NETWORK: &str = "2001:db8:7::/64";

/// Returns a prefix of four workers. The world is the last worker, which has port 50,000.
fn prefix(text: &str) -> RelayPrefix {
    RelayPrefix::new(text.parse().unwrap(), 49_994, 4).unwrap()
}

fn routed(network: &str) -> Policy {
    let own: Vec<Prefix> =
        [RELAY_V4, RELAY_V6, network].iter().map(|own| own.parse().unwrap()).collect();
    let allow: Vec<Prefix> =
        ["192.0.2.0/24", "2001:db8::/32"].iter().map(|own| own.parse().unwrap()).collect();
    Policy {
        prefixes: vec![prefix(network)],
        peer_rules: PeerRules::with_own_prefixes(&allow, &[], &own),
        tcp_relaying: true,
        ..policy()
    }
}

fn even_port(world: &mut World, client: &mut Client, with_next: bool) -> Reply {
    client.try_allocate(world, |b| {
        b.requested_address_family(2);
        b.even_port(with_next);
    })
}

#[test]
fn each_allocation_has_an_address_of_its_own_and_no_socket_of_its_own() {
    let mut world = World::with(routed(NETWORK));
    let network: Prefix = NETWORK.parse().unwrap();
    let mut seen = BTreeSet::new();
    for port in 1..=100 {
        let relayed = Client::new(port).allocate_v6(&mut world);
        assert!(network.contains(relayed.ip()) && relayed.port() == 50_000, "{relayed}");
        assert!(world.socket_at(relayed).is_shared());
        assert!(seen.insert(relayed), "{relayed} was given twice");
    }
    let v4 = Client::new(101).allocate(&mut world);
    assert_eq!(v4.ip(), ip(RELAY_V4), "the other family is as before");
    assert!(!world.socket_at(v4).is_shared());
}

/// A client cannot guess the relayed addresses of other clients.
#[test]
fn addresses_tell_nothing_of_each_other() {
    let mut world = World::with(routed(NETWORK));
    let hosts = (1..=100).map(|port| {
        let relayed = Client::new(port).allocate_v6(&mut world);
        let IpAddr::V6(ip) = relayed.ip() else { panic!("{relayed}") };
        ip.to_bits() as u64
    });
    let hosts: Vec<u64> = hosts.collect();
    for (what, shift, bits) in [("number", 0, 16), ("bits above the number", 18, 46)] {
        let parts: Vec<_> = hosts.iter().map(|host| host >> shift & ((1 << bits) - 1)).collect();
        let near = parts.windows(2).filter(|two| two[0].abs_diff(two[1]) < 100).count();
        assert!(near < 10, "{what}: {parts:?}");
    }
}

#[test]
fn data_goes_both_ways_and_between_two_of_them() {
    let mut world = World::with(routed(NETWORK));
    let (mut a, mut b) = (Client::new(1), Client::new(2));
    let (at_a, at_b) = (a.allocate_v6(&mut world), b.allocate_v6(&mut world));
    a.permit(&mut world, &[PEER_V6, &at_b.to_string()]).success();
    b.permit(&mut world, &[&at_a.to_string()]).success();
    let Fate::ToPeer { from, .. } = a.send(&mut world, PEER_V6, b"to the peer") else { panic!() };
    assert_eq!(from.0, at_a);
    assert!(matches!(world.from_peer(at_a, PEER_V6, b"back"), Fate::ToClient { .. }));
    assert_eq!(world.from_peer(at_b, PEER_V6, b"stray").dropped(), DropReason::NoPermission);

    let Fate::ToPeer { to, .. } = a.send(&mut world, &at_b.to_string(), b"here") else { panic!() };
    assert_eq!(to.0, at_b);
    let from = at_a.to_string();
    assert!(matches!(world.from_peer(at_b, &from, b"here"), Fate::ToClient { .. }));
}

/// Everything that listens on this host at any address listens at those of the prefix as well.
#[test]
fn no_service_of_this_host_is_reached_by_an_address_of_the_prefix() {
    let mut world = World::with(routed(NETWORK));
    let (mut a, mut b) = (Client::new(1), Client::new(2));
    a.allocate_v6(&mut world);
    let at_b = b.allocate_v6(&mut world);
    let other = "[2001:db8:7::1234]:50000";
    a.permit(&mut world, &[&at_b.to_string(), other]).success();
    for port in [22, 80, 3478, 49_998, 50_001, 50_002, 50_003] {
        let own = SocketAddr::new(at_b.ip(), port).to_string();
        assert_eq!(a.send(&mut world, &own, b"x").dropped(), DropReason::OwnAddress, "{own}");
        a.bind(&mut world, 0x4000, &own).refused(403);
    }
    assert_eq!(a.send(&mut world, other, b"x").dropped(), DropReason::OwnAddress);
    drop(b.refresh(&mut world, Some(0)));
    let gone = a.send(&mut world, &at_b.to_string(), b"x");
    assert_eq!(gone.dropped(), DropReason::OwnAddress, "no relay is there any more");
}

#[test]
fn even_port_reserves_the_next_port_of_the_same_address() {
    let mut world = World::with(routed(NETWORK));
    let reply = even_port(&mut world, &mut Client::new(1), true);
    let (first, token) = (reply.relayed()[0], reply.token().unwrap());
    let reply = Client::new(2).try_allocate(&mut world, |b| _ = b.reservation_token(token));
    let second = reply.success().relayed()[0];
    assert_eq!(second, SocketAddr::new(first.ip(), first.port() + 1));
    assert!(!world.socket_at(second).is_shared(), "it is at another port than the others");

    let alone = even_port(&mut world, &mut Client::new(3), false);
    assert_eq!((alone.relayed()[0].port(), alone.token()), (50_000, None));
}

#[test]
fn a_reservation_of_a_prefix_that_was_removed_is_not_redeemed() {
    let mut world = World::with(routed(NETWORK));
    let token = even_port(&mut world, &mut Client::new(1), true).token().unwrap();
    // The reservation holds an address of the removed prefix.
    world.is_shared = true;
    world.apply(Policy { prefixes: Vec::new(), ..routed(NETWORK) });
    assert_eq!(world.ends(), [EndReason::RelayAddressRemoved]);
    world.apply(routed(NETWORK));
    Client::new(2).try_allocate(&mut world, |b| _ = b.reservation_token(token)).refused(508);
}

#[test]
fn a_relay_for_tcp_listens_at_an_address_of_its_own() {
    let mut world = World::with(routed(NETWORK));
    let reply = alice(1).ask(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(6).requested_address_family(2);
    });
    let relayed = reply.success().relayed()[0];
    assert_eq!(relayed.port(), 50_000);
    assert!(!world.socket_at(relayed).is_shared());
    assert!(!world.policy.prefixes[0].is_relay(relayed), "for UDP");
}

#[test]
fn a_network_that_is_used_up_is_followed_by_the_ports_of_an_address() {
    let mut world = World::with(routed("203.0.113.8/30"));
    let all: Vec<SocketAddr> = (1..=3).map(|port| Client::new(port).allocate(&mut world)).collect();
    let of_network = |at: &&SocketAddr| world.policy.prefixes[0].contains(at.ip());
    assert_eq!(all.iter().filter(of_network).count(), 2);
    assert_eq!(all[2].ip(), ip(RELAY_V4));

    let mut policy = routed("203.0.113.8/30");
    policy.relay.clear();
    let mut world = World::with(policy);
    let mut reply = || Client::new(9).try_allocate(&mut world, |_| ());
    reply().success();
    for port in 1..=2 {
        let reply = Client::new(port).try_allocate(&mut world, |_| ());
        assert_eq!(reply.code(), (port == 2).then_some(508));
    }
    assert_eq!(world.refusals().last(), Some(&Refusal::PortsExhausted));
}

#[test]
fn a_prefix_alone_serves_its_family_and_its_end_ends_the_allocations() {
    let mut policy = routed(NETWORK);
    policy.relay.clear();
    let mut world = World::with(policy.clone());
    Client::new(1).allocate_v6(&mut world);
    Client::new(2).try_allocate(&mut world, |_| ()).refused(440);
    world.apply(Policy { prefixes: Vec::new(), ..policy });
    assert_eq!(world.ends(), [EndReason::RelayAddressRemoved]);
}

/// Another program has the worker's port for TCP at all addresses.
#[test]
fn a_port_that_is_taken_at_all_addresses_is_followed_by_the_ports_of_an_address() {
    let mut world = World::with(routed(NETWORK));
    world.taken_ports.insert(50_000);
    let reply = alice(1).ask(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(6).requested_address_family(2);
    });
    assert_eq!(reply.success().relayed()[0].ip(), ip(RELAY_V6));

    let mut policy = routed(NETWORK);
    policy.relay.clear();
    let mut world = World::with(policy);
    world.taken_ports.insert(50_000);
    let reply = alice(1).ask(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(6).requested_address_family(2);
    });
    reply.refused(508);
    assert_eq!(world.opened, 1, "every address of the prefix has the same port");
}
