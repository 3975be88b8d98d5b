//! Allocations of users whom the database no longer has.

use stun_wire::*;
use turn_types::*;

use crate::support::*;

/// Keys are looked up once a minute during requests for peers, without delaying the requests.
#[test]
fn a_deleted_user_gets_no_more_peers_and_nobody_waits_for_the_database() {
    let permit = |client: &mut Client, world: &mut World| {
        let peer = "198.51.100.9:1".parse().unwrap();
        let request = client.sealed(world, Method::CREATE_PERMISSION, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
        client.exchange(world, &request).code()
    };
    let (in_a_minute, mut world) = (secs(61), World::new());
    let mut client = Client::at("192.0.2.1:1").over(Transport::Tcp);
    client.allocate(&mut world);
    for (overloaded, away) in [(true, false), (false, true), (false, false)] {
        (world.database_is_overloaded, world.no_database) = (overloaded, away);
        world.advance(in_a_minute);
        let answers: Vec<_> = (0..16).map(|_| permit(&mut client, &mut world)).collect();
        assert!(answers.iter().all(Option::is_none), "{overloaded} {away}: {answers:?}");
    }
    world.users.remove("alice");
    assert_eq!(permit(&mut client, &mut world), None, "the keys were confirmed just now");
    world.advance(in_a_minute);
    assert_eq!(permit(&mut client, &mut world), None, "the first is answered before the database");
    assert_eq!(permit(&mut client, &mut world), Some(401));
    world.no_database = true;
    assert_eq!(permit(&mut client, &mut world), Some(500), "not in an outage, either");
}

/// Look-ups without an answer are repeated. A silent client would otherwise retain the peers.
#[test]
fn peers_granted_without_an_answer_are_taken_back_later() {
    for failure in 0..3 {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.allocate(&mut world);
        client.use_channel(&mut world, 0x4000, "198.51.100.1:1");
        world.advance(secs(61));
        let failed = [0, 1, 2].map(|one| one == failure);
        [world.database_is_overloaded, world.no_database, world.are_last_known] = failed;
        client.bind(&mut world, 0x4001, "198.51.100.2:1").success();
        world.advance(secs(11));
        client.send_channel(&mut world, 0x4001, b"no answer yet").to_peer();
        [world.database_is_overloaded, world.no_database, world.are_last_known] = [false; 3];
        world.users.remove("alice");
        world.advance(secs(11));
        for (channel, is_there) in [(0x4000, true), (0x4001, false)] {
            let fate = client.send_channel(&mut world, channel, b"data");
            assert_eq!(matches!(fate, Fate::ToPeer { .. }), is_there, "{channel:x}");
        }
    }
}

/// Requests for peers are served during the look-up.
#[test]
fn peers_granted_beside_the_look_up_are_taken_back_from_a_deleted_user() {
    let (first, second, third) = ("198.51.100.1:1", "198.51.100.2:1", "198.51.100.3:1");
    for (number, peer) in [(0x4001, second), (0x4002, third)] {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.allocate(&mut world);
        client.use_channel(&mut world, 0x4000, first);
        client.use_channel(&mut world, 0x4001, second);
        world.advance(secs(61));
        client.bind(&mut world, 0x4001, second).success();
        client.send_channel(&mut world, 0x4001, b"confirmed").to_peer();

        world.users.remove("alice");
        world.advance(secs(61));
        client.bind(&mut world, number, peer).success();
        for (channel, is_there) in [(0x4000, true), (0x4001, number != 0x4001), (0x4002, false)] {
            let fate = client.send_channel(&mut world, channel, b"data");
            assert_eq!(matches!(fate, Fate::ToPeer { .. }), is_there, "{channel:x} of {number:x}");
        }
    }
}
