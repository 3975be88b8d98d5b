//! RFC 8656 §9: permissions.

use turn_proto::*;

use crate::support::*;

/// A client with an allocation and a permission for [`PEER`].
fn permitted(world: &mut World) -> (Client, std::net::SocketAddr) {
    let mut client = Client::new(1);
    let relayed = client.allocate(world);
    client.permit(world, &[PEER]).success();
    (client, relayed)
}

#[test]
fn ports_do_not_count() {
    // 8656-9-01
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    world.from_peer(relayed, "192.0.2.10:9", b"x").to_client();
    client.send(&mut world, "192.0.2.10:65535", b"x").to_peer();
}

#[test]
fn a_permission_lives_300_seconds_to_the_nanosecond() {
    // 8656-9-02
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    world.advance_silently(secs(300) - std::time::Duration::from_nanos(1));
    world.from_peer(relayed, PEER, b"x").to_client();
    client.send(&mut world, PEER, b"x").to_peer();
    world.advance_silently(std::time::Duration::from_nanos(1));
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
    world.advance(secs(2));
    assert_eq!(world.record().permissions, 0, "it is reclaimed");
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
}

#[test]
fn both_requests_refresh_the_same_permission() {
    // 8656-9-03
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(200));
    client.bind(&mut world, 0x4000, "192.0.2.10:7").success();
    world.advance(secs(200));
    world.from_peer(relayed, PEER, b"x").to_client();
    client.permit(&mut world, &[PEER]).success();
    world.advance(secs(299));
    world.from_peer(relayed, PEER, b"x").to_client();
    assert_eq!(world.record().permissions, 1);
    world.advance(secs(1));
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
}

#[test]
fn a_stranger_is_dropped() {
    // 8656-9-04, 8656-21.2.3-01
    let mut world = World::new();
    let (_, relayed) = permitted(&mut world);
    let fate = world.from_peer(relayed, "192.0.2.11:5000", b"x");
    assert_eq!(fate.dropped(), DropReason::NoPermission);
    assert_eq!(world.record().traffic.dropped_packets, 1);
}

#[test]
fn a_permission_belongs_to_one_allocation() {
    // 8656-9-05
    let mut world = World::new();
    let (_, relayed) = permitted(&mut world);
    let mut other = Client::new(2);
    let others = other.allocate(&mut world);
    assert_eq!(world.from_peer(others, PEER, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(other.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
    world.from_peer(relayed, PEER, b"x").to_client();
    other.permit(&mut world, &[PEER]).success();
    other.refresh(&mut world, Some(0)).success();
    world.from_peer(relayed, PEER, b"x").to_client();
}

#[test]
fn a_datagram_to_a_closed_relay_says_so() {
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    let relay = world.socket_at(relayed);
    let local = world.sockets[&relay];
    world.from_peer(relayed, PEER, b"x").to_client();
    client.refresh(&mut world, Some(0)).success();
    // A datagram that was on its way while the socket was being closed.
    world.sockets.insert(relay, local);
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::RelayClosed);
    assert_eq!(world.icmp(relayed, PEER, (3, 3, 0)).unwrap_err(), DropReason::IcmpIgnored);
    world.sockets.remove(&relay);
}

#[test]
fn new_peer_rules_act_on_live_permissions_at_once() {
    // 8656-11.2-05
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    client.permit(&mut world, &["192.0.2.77:1"]).success();
    let policy = Policy { peer_rules: rules(&["192.0.2.10/32"]), ..world.policy.clone() };
    world.apply(policy);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
    client.send(&mut world, "192.0.2.77:1", b"x").to_peer();
    client.permit(&mut world, &[PEER]).refused(403);
}

#[test]
fn with_the_relay_address_goes_the_allocation() {
    let mut world = World::new();
    let (_, v4_only) = permitted(&mut world);
    let mut dual = Client::new(2);
    let (v4, v6) = dual.allocate_both(&mut world);
    dual.permit(&mut world, &[PEER, PEER_V6]).success();
    let all = world.policy.relay.clone();
    let mut policy = world.policy.clone();
    policy.relay.remove(0);
    world.apply(policy);
    assert!(!world.is_open(v4_only) && !world.is_open(v4) && world.is_open(v6));
    assert_eq!(world.ends(), [EndReason::RelayAddressRemoved]);
    world.from_peer(v6, PEER_V6, b"x").to_client();
    assert_eq!(dual.send(&mut world, PEER, b"x").dropped(), DropReason::PeerFamily);
    assert_eq!(all[0].ports.used(), 0);
}
