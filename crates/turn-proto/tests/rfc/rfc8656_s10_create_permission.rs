//! RFC 8656 §10: CreatePermission.

use std::net::SocketAddr;

use stun_wire::*;
use turn_proto::*;

use crate::support::*;

fn permissions(world: &World) -> u32 {
    world.record().permissions
}

#[test]
fn no_peer_address_is_a_bad_request() {
    // 8656-10.2-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &[]).refused(400);
}

#[test]
fn one_malformed_peer_address_spoils_all() {
    // 8656-10.2-02
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    for value in [
        &[][..],
        &[0, 1, 2, 3],
        &[0, 1, 2, 3, 4],
        &[0, 9, 1, 1, 1, 1, 1, 1],
        &[0, 2, 1, 1, 1, 1, 1, 1],
    ] {
        let reply = client.ask(&mut world, Method::CREATE_PERMISSION, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
            builder.attribute(AttributeType::XOR_PEER_ADDRESS, value);
        });
        reply.refused(400);
        assert_eq!(permissions(&world), 0, "{value:?}");
    }
    client.permit(&mut world, &[PEER]).success();
}

#[test]
fn the_wrong_family_gets_443_and_installs_nothing() {
    // 8656-10.2-03
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER_V6]).refused(443);
    client.permit(&mut world, &[PEER, PEER_V6]).refused(443);
    assert_eq!(permissions(&world), 0);
    let mut world = World::new();
    let mut client = Client::new(2);
    client.allocate_v6(&mut world);
    client.permit(&mut world, &[PEER]).refused(443);
    client.permit(&mut world, &[PEER_V6]).success();
}

#[test]
fn a_refusal_names_the_peer_and_the_rule() {
    let mut world = World::with(Policy { peer_rules: rules(&["192.0.2.99/32"]), ..policy() });
    let mut client = Client::new(1);
    client.allocate_both(&mut world);
    for (peer, by) in [
        ("192.0.2.99:1", DeniedBy::Rule),
        ("10.0.0.1:80", DeniedBy::SpecialPurpose),
        ("[::ffff:10.0.0.1]:80", DeniedBy::Never),
        ("224.0.0.1:80", DeniedBy::Never),
    ] {
        let address = peer.parse::<SocketAddr>().unwrap().ip();
        client.permit(&mut world, &[PEER, peer]).refused(403);
        let Some(Notice::Refused(refused)) = world.notices.last() else { panic!("{peer}") };
        let forbidden = ForbiddenPeer { address, by, rule: None };
        assert_eq!(refused.peer, Some(forbidden), "{peer}");
        assert_eq!((refused.user.as_deref(), refused.claimed.as_deref()), (Some("alice"), None));
    }
}

#[test]
fn a_forbidden_peer_gets_403_and_installs_nothing() {
    // 8656-10.2-04, 8656-policy-01, 8656-21.4-01
    let mut world = World::with(Policy { peer_rules: rules(&["192.0.2.99/32"]), ..policy() });
    let mut client = Client::new(1);
    client.allocate_both(&mut world);
    for forbidden in [
        "192.0.2.99:1",
        "127.0.0.1:80",
        "0.0.0.0:80",
        "0.1.2.3:80",
        "10.0.0.1:80",
        "169.254.169.254:80",
        "224.0.0.1:80",
        "255.255.255.255:80",
        "[::]:80",
        "[::1]:80",
        "[fe80::1]:80",
        "[ff02::1]:80",
        "[::ffff:192.0.2.10]:80",
        "[64:ff9b::7f00:1]:80",
        "[2002:7f00:1::1]:80",
        "[2001:0:1::1]:80",
    ] {
        client.permit(&mut world, &[PEER, forbidden]).refused(403);
        assert_eq!(permissions(&world), 0, "{forbidden}");
    }
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(permissions(&world), 1);
}

#[test]
fn permissions_are_limited() {
    // 8656-10.2-05
    let mut policy = policy();
    policy.quotas.permissions = 3;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &["192.0.2.1:0", "192.0.2.2:0"]).success();
    client.permit(&mut world, &["192.0.2.3:0", "192.0.2.4:0"]).refused(508);
    assert_eq!(permissions(&world), 2);
    client.permit(&mut world, &["192.0.2.3:0", "192.0.2.1:0", "192.0.2.3:9"]).success();
    client.bind(&mut world, 0x4000, "192.0.2.4:1").refused(508);
    world.advance_silently(secs(300));
    // Expired permissions do not count, whether reclaimed or not.
    client.permit(&mut world, &["192.0.2.7:0", "192.0.2.8:0", "192.0.2.9:0"]).success();
    assert_eq!(permissions(&world), 3);
}

#[test]
fn several_peers_are_installed_whatever_their_ports() {
    // 8656-10.2-06, 8656-10.2-07
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    let reply = client.permit(&mut world, &["192.0.2.1:0", "192.0.2.2:65535", "192.0.2.3:7"]);
    let reply = reply.success();
    let kinds: Vec<_> = reply.message().attributes().map(|attribute| attribute.kind).collect();
    assert_eq!(kinds, [AttributeType::SOFTWARE], "nothing of its own");
    for peer in ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"] {
        world.from_peer(relayed, peer, b"x").to_client();
    }
}

#[test]
fn a_dual_allocation_takes_both_families_in_one_request() {
    // 8656-10.2-08
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.permit(&mut world, &[PEER, PEER_V6]).success();
    world.from_peer(v4, PEER, b"x").to_client();
    world.from_peer(v6, PEER_V6, b"x").to_client();
}

#[test]
fn more_peers_than_a_request_may_name_are_refused() {
    let mut policy = policy();
    policy.quotas.permissions = limits::PERMISSIONS_MAX;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let peers: Vec<String> =
        (0..=limits::PEERS_PER_REQUEST_MAX).map(|n| format!("192.0.2.{}:1", n % 256)).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    client.permit(&mut world, &peers).refused(508);
    client.permit(&mut world, &peers[1..]).success();
}
