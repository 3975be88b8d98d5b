//! Copies of allocations for a successor: changes since the last copy, and counts of traffic.

use std::collections::BTreeMap;

use state_format::Writer;
use stun_wire::{AttributeType, Method};
use turn_proto::{EndReason, Policy, Traffic};
use turn_types::{AllocationId, IpFamily, SocketId, Transport};

use super::takeover::{bound, next, restart, take};
use crate::support::*;

/// Ids of allocations that have changed since the last call.
fn changed(world: &mut World) -> Vec<AllocationId> {
    let mut ids: Vec<_> = world.server.take_changed(usize::MAX).collect();
    ids.sort();
    ids
}

#[test]
fn a_server_that_dies_is_followed_by_its_copies() {
    let mut old = World::new();
    let (mut client, relayed) = bound(&mut old);
    let id = old.record().id;
    assert_eq!(changed(&mut old), [], "nobody asks");
    old.server.keep_changes(true);
    assert_eq!(changed(&mut old), [id], "all that there are");
    client.bind(&mut old, 0x4001, "192.0.2.12:1").success();
    client.permit(&mut old, &["192.0.2.13:1"]).success();
    client.refresh(&mut old, Some(1200)).success();
    assert!(old.server.has_changes());
    assert_eq!(changed(&mut old), [id], "once");
    client.send_channel(&mut old, 0x4000, b"x").to_peer();
    old.from_peer(relayed, PEER, b"x").to_client();
    assert_eq!(changed(&mut old), [], "traffic is no change");

    let copy = old.server.copy(id).unwrap();
    let mut out = Writer::new();
    copy.write(&mut out);
    let state = out.into_bytes();
    let sockets: Vec<_> = copy.relays().map(|relay| (relay, old.sockets[&relay])).collect();
    // Changes after the copy are lost.
    client.bind(&mut old, 0x4002, "192.0.2.14:1").success();
    assert_eq!(changed(&mut old), [id]);
    let mut new = next(&old, policy());
    drop(old);
    take(&mut new, &state, &sockets).unwrap();
    client.send_channel(&mut new, 0x4001, b"x").to_peer();
    client.send(&mut new, "192.0.2.13:9", b"x").to_peer();
    new.from_peer(relayed, PEER, b"x").to_client();
    client.send_channel(&mut new, 0x4002, b"x").dropped();
    client.bind(&mut new, 0x4002, "192.0.2.14:1").success();

    new.server.keep_changes(true);
    assert_eq!(changed(&mut new), [id]);
    client.refresh(&mut new, Some(0)).success();
    assert_eq!(changed(&mut new), [id], "its end");
    assert!(new.server.copy(id).is_none());
    new.server.keep_changes(false);
    client.allocate(&mut new);
    assert_eq!(changed(&mut new), []);
}

/// The session continues until its expiry. The successor cannot determine the refuted users unless
/// the session contains this fact.
#[test]
fn a_user_that_the_database_refuses_is_refreshed_in_no_outage() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.server.keep_changes(true);
    assert_eq!(changed(&mut world).len(), 1);
    let users = std::mem::take(&mut world.users);
    let changed_password = users.keys().map(|name| (*name, "another password")).collect();
    for others in [BTreeMap::new(), changed_password] {
        world.users = others;
        assert_eq!(client.refresh(&mut world, Some(600)).code(), Some(401));
        assert_eq!(changed(&mut world).len(), 1, "copies know it");
        world = restart(world, policy());
        world.server.keep_changes(true);
        assert_eq!(changed(&mut world).len(), 1);
        world.no_database = true;
        assert_eq!(client.refresh(&mut world, Some(600)).code(), Some(500));
        world.no_database = false;
        world.users.clone_from(&users);
        client.refresh(&mut world, Some(600)).success();
        world.no_database = true;
        client.refresh(&mut world, Some(600)).success();
        world.no_database = false;
        assert_eq!(changed(&mut world).len(), 1);
    }
}

/// An allocation without progress is not sent again. Everything reportable about an allocation
/// changes the count of progress.
#[test]
fn progress_has_another_count_with_each_step() {
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    let id = world.record().id;
    let mut count = world.server.progress_count(id);
    assert_eq!(world.server.progress_count(id), count);
    let mut moves_on = |world: &World, with: &str| {
        let before = std::mem::replace(&mut count, world.server.progress_count(id));
        assert_ne!(count, before, "{with}");
    };
    client.send_channel(&mut world, 0x4000, b"").to_peer();
    moves_on(&world, "an empty packet");
    world.from_peer(relayed, PEER, b"1").to_client();
    moves_on(&world, "a packet to the client");
    client.send(&mut world, "192.0.2.99:9", b"1").dropped();
    moves_on(&world, "a dropped packet");
    client.refresh(&mut world, None).success();
    moves_on(&world, "a refresh");
    let refused = client.bind(&mut world, 0x4000, "192.0.2.99:9");
    assert_eq!(refused.code(), Some(400));
    moves_on(&world, "a refused request");
    client.refresh(&mut world, Some(0)).success();
    assert_eq!(world.server.progress_count(id), None);
}

/// A copy contains the traffic before the copy, and the last progress contains the traffic since.
/// The old process has counted both. Each packet is counted once, even after the end of its
/// allocation.
#[test]
fn traffic_is_counted_by_one_process_alone() {
    let counted = |world: &World| *world.server.carried_traffic().of(Transport::Udp, IpFamily::V4);
    let mut old = World::new();
    let (mut client, relayed) = bound(&mut old);
    let exchange = |world: &mut World, client: &mut Client, [to_peer, to_client]: [&[u8]; 2]| {
        client.send_channel(world, 0x4000, to_peer).to_peer();
        world.from_peer(relayed, PEER, to_client).to_client();
        client.send(world, "192.0.2.99:9", b"without a permission").dropped();
    };
    exchange(&mut old, &mut client, [b"1", b"22"]);
    let id = old.record().id;
    let copy = old.server.copy(id).unwrap();
    let mut out = Writer::new();
    copy.write(&mut out);
    let sockets: Vec<_> = copy.relays().map(|relay| (relay, old.sockets[&relay])).collect();
    let mut new = next(&old, policy());
    take(&mut new, &out.into_bytes(), &sockets).unwrap();
    assert_eq!(counted(&new), Traffic::default(), "by the old one");
    // The old process serves until it leaves, and the kernel relays for it until it withdraws.
    for more in [[&[0; 40], &[0; 50]], [&[0; 600], &[0; 700]]] as [[&[u8]; 2]; 2] {
        exchange(&mut old, &mut client, more);
        new.server.set_progress(id, old.server.progress(id).unwrap());
        assert_eq!(counted(&new), Traffic::default(), "by the old one");
    }
    exchange(&mut new, &mut client, [&[0; 8000], &[0; 9000]]);
    let both = |old: &World, new: &World| {
        let (old, new) = (counted(old), counted(new));
        Traffic {
            to_peer_packets: old.to_peer_packets + new.to_peer_packets,
            to_peer_bytes: old.to_peer_bytes + new.to_peer_bytes,
            to_client_packets: old.to_client_packets + new.to_client_packets,
            to_client_bytes: old.to_client_bytes + new.to_client_bytes,
            dropped_packets: old.dropped_packets + new.dropped_packets,
        }
    };
    let relayed = Traffic {
        to_peer_packets: 5,
        to_peer_bytes: 8641,
        to_client_packets: 4,
        to_client_bytes: 9752,
        dropped_packets: 4,
    };
    assert_eq!((both(&old, &new), counted(&new).to_peer_bytes), (relayed, 8000));
    assert_eq!(new.record().traffic, relayed, "its session");
    client.refresh(&mut new, Some(0)).success();
    assert_eq!((both(&old, &new), counted(&new).to_peer_bytes), (relayed, 8000));
}

/// The kernel's last count of an allocation may come when its end was handled.
#[test]
fn traffic_told_after_the_end_of_its_allocation_counts() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    client.send_channel(&mut world, 0x4000, b"1").to_peer();
    client.refresh(&mut world, Some(0)).success();
    let late = Traffic { to_peer_packets: 2, to_peer_bytes: 300, ..Traffic::default() };
    world.server.carried_late(&client.path.five_tuple, &late);
    let counted = *world.server.carried_traffic().of(Transport::Udp, IpFamily::V4);
    assert_eq!((counted.to_peer_packets, counted.to_peer_bytes), (4, 301));
}

/// Each change or end of an allocation without a request: by time, or by an operator's action.
#[test]
fn expiry_moves_and_new_rules_are_changes() {
    let rules = || Policy { mobility: true, ..policy() };
    let mut world = World::with(rules());
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
    });
    let ticket = reply.success().first(AttributeType::MOBILITY_TICKET).unwrap().to_vec();
    let id = world.record().id;
    world.server.keep_changes(true);
    assert_eq!(changed(&mut world), [id]);
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(changed(&mut world), [id]);
    world.advance(secs(301));
    assert_eq!(changed(&mut world), [id], "its permission has expired");
    let mut new = Client::new(2000);
    new.path.socket = SocketId(9);
    new.ask(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    })
    .success();
    assert_eq!(changed(&mut world), [id], "its client has moved");
    world.apply(rules());
    assert_eq!(changed(&mut world), [id], "its rules are others");
    world.advance(secs(3600));
    assert_eq!(world.ends(), [EndReason::Expired]);
    assert_eq!(changed(&mut world), [id], "it has expired");
}
