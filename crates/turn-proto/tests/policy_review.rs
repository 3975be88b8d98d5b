//! New policy with many allocations. The policy takes effect immediately for every packet, and
//! denied permissions are removed in parts of bounded work.

use std::net::SocketAddr;
use std::sync::Arc;

use stun_wire::{Method, UserName};
use turn_proto::limits::{CHANNELS_MAX, JUDGED_PER_PART, PERMISSIONS_MAX};
use turn_proto::*;

use crate::support::tcp::{alice, connect_request, tcp_world};
use crate::support::*;

/// Permissions of each client that holds many.
const MANY: usize = 1000;

/// Clients that hold more permissions than one part of a review judges.
const CLIENTS: u16 = (JUDGED_PER_PART / MANY) as u16 + 2;

/// A peer that the [stricter](stricter) policy denies.
const DENIED: &str = "192.0.2.66:5000";

fn with_many(world: &mut World) {
    world.policy.quotas.permissions = PERMISSIONS_MAX;
    world.apply(world.policy.clone());
}

fn stricter(world: &World) -> Policy {
    let peer_rules = rules(&["192.0.2.66/32", "5.0.0.0/8"]);
    Policy { peer_rules, ..world.policy.clone() }
}

/// An allocation with many permissions.
fn hold_many(world: &mut World, port: u16) -> Client {
    let mut client = Client::new(port);
    client.allocate(world);
    permit_many(world, &mut client, MANY);
    client
}

fn permit_many(world: &mut World, client: &mut Client, count: usize) {
    let names: Vec<String> = (0..count).map(|n| format!("5.0.{}.{}:1", n / 250, n % 250)).collect();
    for names in names.chunks(100) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.permit(world, &names).success();
    }
}

/// Clients whose allocations are reviewed first, in at least one part.
fn fill(world: &mut World) {
    for port in 100..100 + CLIENTS {
        hold_many(world, port);
    }
}

fn permissions(world: &World) -> usize {
    world.server.allocations().map(|record| record.permissions as usize).sum()
}

fn last(world: &World) -> AllocationRecord {
    world.server.allocations().last().unwrap()
}

/// Does the next part of a review; false if none is due.
fn next_part(world: &mut World) -> bool {
    if world.server.poll_timeout().is_none_or(|due| due > world.now.instant) {
        return false;
    }
    world.server.handle_timeout(world.now);
    assert!(world.carry_out().is_empty());
    true
}

fn finish(world: &mut World) {
    while next_part(world) {}
}

/// Nothing passes between a client and the denied peer.
fn assert_denied(world: &mut World, client: &mut Client, relayed: SocketAddr) {
    assert_eq!(client.send(world, DENIED, b"x").dropped(), DropReason::NoPermission);
    let by_channel = client.send_channel(world, 0x4001, b"x").dropped();
    assert_eq!(by_channel, DropReason::ChannelNotBound);
    assert_eq!(world.from_peer(relayed, DENIED, b"x").dropped(), DropReason::NoPermission);
    let report = world.icmp(relayed, DENIED, (3, 3, 0));
    assert_eq!(report.unwrap_err(), DropReason::IcmpIgnored);
}

/// Data passes between a client and the allowed peer, by permission and by channel.
fn assert_allowed(world: &mut World, client: &mut Client, relayed: SocketAddr) {
    assert_eq!(client.send(world, PEER, b"x").to_peer(), b"x");
    assert_eq!(client.send_channel(world, 0x4000, b"x").to_peer(), b"x");
    assert_eq!(world.from_peer(relayed, PEER, b"x").to_client()[..2], [0x40, 0]);
    world.icmp(relayed, PEER, (3, 3, 0)).unwrap();
}

/// A client with an allowed and a denied peer, each with a permission and a channel.
fn subject(world: &mut World, port: u16) -> (Client, SocketAddr) {
    let mut client = Client::new(port);
    let relayed = client.allocate(world);
    client.use_channel(world, 0x4000, PEER);
    client.use_channel(world, 0x4001, DENIED);
    (client, relayed)
}

#[test]
fn work_per_call_is_bounded_and_denied_peers_are_cut_immediately() {
    const CLIENTS: u16 = 200;
    // One part judges all of an allocation.
    const PART_MAX: usize = JUDGED_PER_PART + (PERMISSIONS_MAX + CHANNELS_MAX) as usize;
    let mut world = World::new();
    with_many(&mut world);
    for port in 100..100 + CLIENTS {
        hold_many(&mut world, port);
    }
    let (mut client, relayed) = subject(&mut world, 1);
    assert_allowed(&mut world, &mut client, relayed);
    let mut left = permissions(&world);
    assert_eq!(left, usize::from(CLIENTS) * MANY + 2);

    world.apply(stricter(&world));
    let mut parts = 1;
    loop {
        let now_left = permissions(&world);
        assert!(left - now_left <= PART_MAX, "{} in one part", left - now_left);
        left = now_left;
        assert_denied(&mut world, &mut client, relayed);
        assert_allowed(&mut world, &mut client, relayed);
        if !next_part(&mut world) {
            break;
        }
        parts += 1;
    }
    assert!(parts > usize::from(CLIENTS) * MANY / PART_MAX, "{parts} parts");
    assert_eq!(permissions(&world), 1, "the allowed peer's");
    assert_eq!(last(&world).channels, 1);
}

#[test]
fn routes_rest_until_their_channels_are_judged() {
    let mut world = World::new();
    with_many(&mut world);
    // The route is judged first, although it was created last. The other allocations have no route.
    fill(&mut world);
    let (mut first, at_first) = subject(&mut world, 1);
    world.apply(stricter(&world));
    assert!(!world.suspends_routes, "one part has judged all routes");
    assert_eq!(world.routes.values().map(|route| route.peer).collect::<Vec<_>>(), [peer(PEER)]);
    assert!(permissions(&world) > 1, "permissions without routes are judged later");
    finish(&mut world);

    world.apply(Policy { peer_rules: rules(&[]), ..world.policy.clone() });
    finish(&mut world);
    for port in 100..100 + CLIENTS {
        // The clients already have allocations.
        let mut client = Client::new(port);
        client.log_in(&mut world);
        permit_many(&mut world, &mut client, MANY);
        client.use_channel(&mut world, 0x4000, "5.0.0.1:1");
    }
    first.use_channel(&mut world, 0x4001, DENIED);
    world.apply(stricter(&world));
    assert!(world.suspends_routes);
    assert!(world.routes.values().any(|route| route.peer == peer(DENIED)));
    // Requests set no route of an allocation before its review.
    first.bind(&mut world, 0x4002, "192.0.2.77:1").success();
    let routes_to = |world: &World, to: &str| {
        world.routes.values().filter(|route| route.peer == peer(to)).count()
    };
    assert_eq!(routes_to(&world, "192.0.2.77:1"), 0);
    // Each packet is judged.
    first.send_channel(&mut world, 0x4002, b"first").to_peer();
    assert_eq!(routes_to(&world, "192.0.2.77:1"), 1);
    assert_denied(&mut world, &mut first, at_first);
    while world.suspends_routes {
        assert!(next_part(&mut world));
    }
    let mut peers: Vec<_> = world.routes.values().map(|route| route.peer).collect();
    peers.sort_unstable();
    assert_eq!(peers, [peer(PEER), peer("192.0.2.77:1")]);
    finish(&mut world);
    assert_denied(&mut world, &mut first, at_first);
    assert_allowed(&mut world, &mut first, at_first);
}

#[test]
fn connections_with_denied_peers_are_closed_immediately() {
    let mut world = tcp_world();
    with_many(&mut world);
    fill(&mut world);
    let mut client = alice(1);
    let reply = client.ask(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(6);
    });
    let relayed = reply.success().relayed()[0];
    client.permit(&mut world, &[PEER, DENIED]).success();
    let stays = world.peer_connects(relayed, PEER).unwrap().0;
    world.peer_connects(relayed, DENIED).unwrap();
    // A connection before the denied peer accepts it.
    world.silent.insert(addr("192.0.2.66:5001"));
    let request = connect_request(&mut world, &mut client, "192.0.2.66:5001");
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    assert_eq!(world.connections.len(), 3);

    world.server.apply(world.now, Arc::new(stricter(&world)));
    let answers = world.carry_out();
    let [(_, answer)] = &answers[..] else { panic!("{} answers", answers.len()) };
    client.decode(&request, answer.clone()).refused(447);
    assert_eq!(last(&world).permissions, 2, "not reviewed yet");
    assert_eq!(world.connections.keys().collect::<Vec<_>>(), [&stays]);
    let again = world.peer_connects(relayed, "192.0.2.66:5002");
    assert_eq!(again.unwrap_err(), PeerRefusal::NoPermission);
    world.peer_connects(relayed, "192.0.2.10:5002").unwrap();
    finish(&mut world);
    assert_eq!(last(&world).connections, 2);
}

#[test]
fn a_revoked_credential_passes_nothing_before_its_allocation_ends() {
    let mut world = World::new();
    with_many(&mut world);
    fill(&mut world);
    let mut bob = Client::new(1).as_bob();
    let relayed = bob.allocate(&mut world);
    bob.permit(&mut world, &[PEER]).success();
    let mut revoked = Revoked::default();
    revoked.refuse_name(REALM.into(), &UserName::new(bob.user).unwrap());
    world.ends();
    world.apply(Policy { revoked: Arc::new(revoked), ..world.policy.clone() });
    assert_eq!(world.ends(), [], "not reviewed yet");
    let dropped = bob.send(&mut world, PEER, b"x").dropped();
    assert_eq!(dropped, DropReason::NoPermission);
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
    finish(&mut world);
    assert_eq!(world.ends(), [EndReason::Revoked]);
}

#[test]
fn an_address_that_becomes_own_is_closed_but_for_relays() {
    let mut world = World::new();
    with_many(&mut world);
    fill(&mut world);
    let (mut client, relayed) = subject(&mut world, 1);
    let own = [ip(RELAY_V4), ip(RELAY_V6), ip("192.0.2.66")];
    let peer_rules = PeerRules::new(&["192.0.2.0/24".parse().unwrap()], &[], &own);
    let relay = RelayAddress {
        local: ip("192.0.2.66"),
        public: ip("192.0.2.66"),
        ports: RelayPorts::new(),
        is_present: true,
    };
    let mut policy = Policy { peer_rules, ..world.policy.clone() };
    policy.relay.push(relay);
    world.apply(policy);
    assert_eq!(last(&world).permissions, 2, "not reviewed yet");
    for _ in 0..2 {
        assert_eq!(client.send(&mut world, DENIED, b"x").dropped(), DropReason::OwnAddress);
        let by_channel = client.send_channel(&mut world, 0x4001, b"x").dropped();
        assert_eq!(by_channel, DropReason::OwnAddress);
        assert_eq!(world.from_peer(relayed, DENIED, b"x").dropped(), DropReason::OwnAddress);
        assert_allowed(&mut world, &mut client, relayed);
        finish(&mut world);
    }
    assert_eq!(last(&world).permissions, 2, "permissions have no port");
}

#[test]
fn changes_that_come_faster_than_reviews_leave_no_allocation_out() {
    let mut world = World::new();
    with_many(&mut world);
    for port in 100..100 + 3 * CLIENTS {
        hold_many(&mut world, port);
    }
    subject(&mut world, 1);
    let policy = stricter(&world);
    for _ in 0..5 * CLIENTS {
        world.apply(policy.clone());
    }
    assert_eq!(permissions(&world), 1, "the allowed peer's");
}
