//! RFC 8656 §21 and our own rules: the peers of clients, the effects of unauthenticated sources.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

#[test]
fn clients_behind_tunnels_get_no_allocation() {
    // 8656-21.4-01, 8656-7.4-02
    let mut world = World::new();
    for client in ["[2002:c633:6407::1]:1", "[2001:0:53aa:64c::1]:1"] {
        Client::at(client).try_allocate(&mut world, |_| ()).refused(403);
        assert_eq!(world.refusals().last(), Some(&Refusal::TunnelClient));
    }
    Client::at("[2001:db8:7::7]:1").allocate(&mut world);
}

#[test]
fn our_own_address_is_a_peer_only_where_an_allocation_lives() {
    // 8656-21.1.7-01, 8656-policy-01
    let mut world = World::new();
    let mut first = Client::new(1);
    let mut second = Client::new(2);
    let relayed = first.allocate(&mut world);
    let other = second.allocate(&mut world);
    let service = format!("{RELAY_V4}:3478");
    first.permit(&mut world, &[&service]).success();
    assert_eq!(first.send(&mut world, &service, b"x").dropped(), DropReason::OwnAddress);
    first.bind(&mut world, 0x4000, &service).refused(403);
    let fate = world.from_peer(relayed, &service, b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress);

    // The hairpin.
    first.send(&mut world, &other.to_string(), b"x").to_peer();
    world.from_peer(relayed, &other.to_string(), b"x").to_client();
    first.bind(&mut world, 0x4001, &other.to_string()).success();
    first.send_channel(&mut world, 0x4001, b"x").to_peer();
    second.refresh(&mut world, Some(0)).success();
    let fate = first.send_channel(&mut world, 0x4001, b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress, "nobody is there any more");
    let fate = first.send(&mut world, &other.to_string(), b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress);
}

#[test]
fn addresses_of_the_host_that_relay_nothing_are_forbidden() {
    // 8656-policy-01
    let mut policy = policy();
    let own = [ip(RELAY_V4), ip(RELAY_V6), ip("203.0.113.77")];
    policy.peer_rules = PeerRules::new(&["203.0.113.0/24".parse().unwrap()], &[], &own);
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &["203.0.113.77:1"]).refused(403);
    client.permit(&mut world, &["203.0.113.78:1"]).success();
}

#[test]
fn a_peer_on_this_host_can_be_allowed_by_name() {
    let mut policy = policy();
    let allow = ["203.0.113.1/32".parse().unwrap()];
    policy.peer_rules = PeerRules::new(&allow, &[], &[ip(RELAY_V4)]);
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, "203.0.113.1:5004").success();
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.from_peer(relayed, "203.0.113.1:5004", b"x").to_client();
}

#[test]
fn behind_nat_the_public_form_of_our_address_is_our_address() {
    let mut world = World::with(behind_nat());
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    for own in [format!("{RELAY_V4}:22"), "10.0.0.5:22".into()] {
        client.bind(&mut world, 0x4000, &own).refused(403);
        client.permit(&mut world, &[&own]).success();
        assert_eq!(client.send(&mut world, &own, b"x").dropped(), DropReason::OwnAddress);
    }
    // Both forms of the address share a permission.
    assert_eq!(world.record().permissions, 1);
    let fate = world.from_peer(relayed, "10.0.0.5:22", b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress);
    // A rule about the public form applies too, and also to live permissions.
    let mut policy = world.policy.clone();
    let own = [ip("10.0.0.5"), ip(RELAY_V4), ip(RELAY_V6)];
    let deny = [format!("{RELAY_V4}/32").parse().unwrap()];
    policy.peer_rules = PeerRules::new(&[], &deny, &own);
    world.apply(policy);
    assert_eq!(world.record().permissions, 0);
    client
        .permit(&mut world, &[RELAY_V4].map(|ip| format!("{ip}:1")).each_ref().map(String::as_str))
        .refused(403);
}

#[test]
fn strangers_share_a_budget_of_answers() {
    // 8489-16.1.2-02
    let mut world = World::with(Policy {
        unauthenticated: UnauthenticatedBudget { per_second: 10 },
        ..policy()
    });
    let mut known = Client::at("192.0.2.1:1");
    known.allocate(&mut world);
    let mut answered = 0;
    for port in 1..=100 {
        // Different hosts of one /24.
        let mut client = Client::at(&format!("198.51.100.{port}:{port}"));
        let method = if port % 2 == 0 { Method::BINDING } else { Method::ALLOCATE };
        let request = client.bare(method, |_| ());
        let fate = world.from_client(&client.path, &request);
        if matches!(fate, Fate::Reply(_)) {
            answered += 1;
        } else {
            assert_eq!(fate.dropped(), DropReason::UnauthenticatedBudget);
        }
    }
    // A burst of one second: a half for each kind.
    assert_eq!(answered, 10);
    // Another network has a separate budget, and a client with credentials needs none.
    let mut other = Client::at("203.0.113.99:1");
    let request = other.bare(Method::BINDING, |_| ());
    other.exchange(&mut world, &request);
    let mut inside = Client::at("192.0.2.2:1");
    for _ in 0..100 {
        known.refresh(&mut world, None).success();
    }
    world.advance(secs(1));
    inside.allocate(&mut world);
}

#[test]
fn on_an_open_relay_everybody_is_a_stranger() {
    let mut policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 40 }, ..policy() };
    policy.auth.open = true;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let answers = (0..100).filter(|_| {
        let request = client.bare(Method::REFRESH, |_| ());
        matches!(world.from_client(&client.path, &request), Fate::Reply(_))
    });
    assert_eq!(answers.count(), 15, "all but the part for others of a half of the rate");
}

#[test]
fn who_allocated_on_an_open_relay_has_no_key_afterwards() {
    let mut open = policy();
    open.auth.open = true;
    let mut world = World::with(open);
    let mut client = Client::new(1);
    let request = client.bare(Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    client.exchange(&mut world, &request);
    assert_eq!(world.server.allocation_count(), 1);
    let mut closed = world.policy.clone();
    closed.auth.open = false;
    world.apply(closed);
    client.log_in(&mut world);
    // A request with an empty user name, and with the key for an empty name.
    let mut out = [0; 512];
    let id = client.next_transaction();
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::REFRESH, id);
    builder.username("").realm(REALM).nonce(client.nonce.as_ref().unwrap());
    let sealed = builder.integrity(IntegrityKind::Sha1, &IntegrityKey::new(&[0; 16]));
    let len = sealed.finish().unwrap();
    let reply = client.exchange(&mut world, &out[..len]);
    assert_eq!((reply.code(), reply.sealed), (Some(401), false));
    assert_eq!(world.refusals().last(), Some(&Refusal::InvalidUsername), "no user has this name");
    assert_eq!(world.server.allocation_count(), 1);
}

#[test]
fn look_ups_for_strangers_are_within_the_budget() {
    let mut world = World::with(Policy {
        unauthenticated: UnauthenticatedBudget { per_second: 10 },
        ..policy()
    });
    let mut client = Client::new(1);
    client.user = "nobody";
    client.log_in(&mut world);
    let mut answered = 0;
    for _ in 0..100 {
        let request = client.sealed(&mut world, Method::ALLOCATE, |_| ());
        let fate = world.from_client(&client.path, &request);
        if matches!(fate, Fate::Reply(_)) {
            answered += 1;
        } else {
            assert_eq!(fate.dropped(), DropReason::VerificationBudget);
        }
    }
    // One of ten responses a second may be about a failed verification.
    assert_eq!((world.looked_up, answered), (1, 1));
}

#[test]
fn nothing_is_kept_before_authentication() {
    // 8489-6.3.1-04
    let mut world = World::new();
    for port in 1..=20_000 {
        let mut client = Client::new(port);
        let request = client.bare(Method::ALLOCATE, |_| ());
        let reply = world.from_client(&client.path, &request).reply();
        assert!(reply.len() <= 200, "8489-16.1.2-02: {} bytes", reply.len());
        assert!(world.held.is_empty());
    }
    assert_eq!(world.server.poll_timeout(), None, "nothing that would have to run out");
    assert_eq!(world.looked_up, 0);
}

#[test]
fn a_forged_nonce_causes_no_look_up() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.log_in(&mut world);
    // The nonce of another client.
    let mut thief = Client::new(2);
    thief.nonce.clone_from(&client.nonce);
    let reply = thief.ask(&mut world, Method::ALLOCATE, |_| ());
    assert_eq!((reply.code(), world.looked_up), (Some(438), 0));
    assert_eq!(world.refusals().last(), Some(&Refusal::InvalidNonce));
}

#[test]
fn the_user_of_an_allocation_is_not_looked_up_again() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    assert_eq!(world.looked_up, 1);
    world.users.clear();
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, 0x4000, PEER).success();
    assert_eq!(world.looked_up, 1);
}

#[test]
fn an_operator_may_end_an_allocation() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    let id = world.record().id;
    assert_eq!(id.worker(), WorkerId(3));
    let now = world.now;
    assert!(world.server.end_allocation(now, id, EndReason::EndedByOperator));
    assert!(!world.server.end_allocation(now, id, EndReason::EndedByOperator));
    world.carry_out();
    world.check();
    assert!(!world.is_open(relayed));
    assert_eq!(world.ends(), [EndReason::EndedByOperator]);
    client.refresh(&mut world, None).refused(437);
}

#[test]
fn one_record_tells_what_an_allocation_used() {
    // 8656-21.3.2-01
    let mut world = World::with(behind_nat());
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    client.send_channel(&mut world, 0x4000, &[0; 100]).to_peer();
    client.send(&mut world, PEER, &[0; 10]).to_peer();
    world.from_peer(relayed, PEER, &[0; 1000]).to_client();
    world.from_peer(relayed, "192.0.2.11:1", &[0; 1000]).dropped();
    client.send_channel(&mut world, 0x4001, &[0; 100]).dropped();
    let created = world.now.instant;
    world.advance(secs(5));
    client.refresh(&mut world, Some(0)).success();
    let [Notice::AllocationCreated(begin), Notice::AllocationEnded(end)] = &world
        .notices
        .iter()
        .filter(|notice| !matches!(notice, Notice::Refused(_)))
        .cloned()
        .collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", world.notices);
    };
    assert_eq!((begin.id, begin.traffic, begin.end), (end.id, Traffic::default(), None));
    assert_eq!(end.relayed, [Some(RelayedAddr(relayed)), None], "as the client was told");
    assert_eq!((&*end.user, &*end.account, &*end.realm), ("alice", "alice", REALM));
    assert_eq!(end.five_tuple, client.path.five_tuple);
    assert_eq!(end.created, created);
    assert_eq!(end.end, Some((EndReason::Deleted, created + secs(5))));
    let expected = Traffic {
        to_peer_packets: 2,
        to_peer_bytes: 110,
        to_client_packets: 1,
        to_client_bytes: 1000,
        dropped_packets: 2,
    };
    assert_eq!(end.traffic, expected);
}

#[test]
fn notices_that_nobody_polls_are_bounded() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let request = client.bare(Method::ALLOCATE, |_| ());
    for _ in 0..limits::NOTICES_MAX + 10 {
        let mut reply = [0; REPLY_MAX];
        world.server.handle_client(world.now, &client.path, IpMeta::DEFAULT, &request, &mut reply);
    }
    assert_eq!(world.server.notices_lost(), 10);
    world.carry_out();
    assert_eq!(world.notices.len(), limits::NOTICES_MAX);
}

#[test]
fn a_reserved_port_is_no_peer_before_its_relay_is_open() {
    // The reserved port may belong to another process on this host.
    let mut world = World::new();
    let mut client = Client::new(1);
    let reply = client.try_allocate(&mut world, |builder| {
        builder.even_port(true);
    });
    let reply = reply.success();
    let (even, token) = (reply.relayed()[0], reply.token().unwrap());
    let next = std::net::SocketAddr::new(even.ip(), even.port() + 1).to_string();
    client.permit(&mut world, &[&next]).success();
    assert_eq!(client.send(&mut world, &next, b"x").dropped(), DropReason::OwnAddress);
    assert_eq!(world.from_peer(even, &next, b"x").dropped(), DropReason::OwnAddress);
    client.bind(&mut world, 0x4000, &next).refused(403);

    let mut other = Client::new(2);
    let redeemed = other.try_allocate(&mut world, |builder| {
        builder.reservation_token(token);
    });
    assert_eq!(redeemed.success().relayed()[0].to_string(), next);
    assert_eq!(client.send(&mut world, &next, b"x").to_peer(), b"x");
}

#[test]
fn a_rule_about_the_public_address_holds_for_the_local_one() {
    let mut policy = behind_nat();
    let own = [ip("10.0.0.5"), ip(RELAY_V4), ip(RELAY_V6)];
    let deny = [format!("{RELAY_V4}/32").parse().unwrap()];
    policy.peer_rules = PeerRules::new(&[], &deny, &own);
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &[&format!("{RELAY_V4}:1")]).refused(403);
    client.permit(&mut world, &["10.0.0.5:1"]).refused(403);
}

#[test]
fn a_rule_about_the_network_behind_nat_leaves_relays_in_reach() {
    let mut policy = behind_nat();
    let own = [ip("10.0.0.5"), ip(RELAY_V4), ip(RELAY_V6)];
    policy.peer_rules = PeerRules::new(&[], &["10.0.0.0/8".parse().unwrap()], &own);
    let mut world = World::with(policy);
    let (mut first, mut second) = (Client::new(1), Client::new(2));
    let from = first.allocate(&mut world);
    let other = second.allocate(&mut world).to_string();
    first.permit(&mut world, &[&other]).success();
    first.bind(&mut world, 0x4000, &other).success();
    first.send_channel(&mut world, 0x4000, b"x").to_peer();
    second.permit(&mut world, &[&from.to_string()]).success();
    // A reload of the same rules changes nothing.
    world.apply(world.policy.clone());
    first.send(&mut world, &other, b"x").to_peer();
    // Services of the host, the form named by the rule, and the other addresses of that network
    // remain unreachable.
    let service = format!("{RELAY_V4}:22");
    first.bind(&mut world, 0x4001, &service).refused(403);
    assert_eq!(first.send(&mut world, &service, b"x").dropped(), DropReason::OwnAddress);
    for denied in ["10.0.0.5:22", "10.0.0.6:1"] {
        first.permit(&mut world, &[denied]).refused(403);
    }
}

#[test]
fn an_allocation_outlives_the_opening_of_the_relay() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    let mut open = world.policy.clone();
    open.auth.open = true;
    world.apply(open);
    client.refresh(&mut world, None).success();
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, 0x4000, PEER).success();
    // No other client can act for the user, with any content.
    let stranger = client.bare(Method::REFRESH, |builder| {
        builder.lifetime(0);
    });
    assert_eq!(client.exchange(&mut world, &stranger).code(), Some(441));
    client.refresh(&mut world, Some(0)).success();
}

#[test]
fn whoever_proved_a_name_is_answered_whatever_strangers_do() {
    let mut policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 10 }, ..policy() };
    policy.lifetimes.nonce = secs(600);
    let mut world = World::with(policy);
    let mut client = Client::at("198.51.100.7:1");
    client.allocate(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(700)); // the nonce is stale now
    let mut refused = None;
    for port in 1..=100 {
        let mut stranger = Client::at(&format!("198.51.100.{port}:{port}"));
        let request = stranger.bare(Method::ALLOCATE, |_| ());
        refused = Some(world.from_client(&stranger.path, &request));
    }
    let refused = refused.map(Fate::dropped);
    assert_eq!(refused, Some(DropReason::UnauthenticatedBudget), "strangers have used it up");
    let request = client.sealed(&mut world, Method::CREATE_PERMISSION, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
    });
    let Fate::Reply(reply) = world.from_client(&client.path, &request) else {
        panic!("a stale nonce of somebody known is answered");
    };
    assert_eq!(client.decode(&request, reply).code(), Some(438));
}

#[test]
fn nobody_is_charged_twice_for_one_request() {
    let mut world = World::with(Policy {
        unauthenticated: UnauthenticatedBudget { per_second: 2 },
        ..policy()
    });
    // The address is proved: all responses to the address share a budget.
    let mut client = Client::new(1).over(Transport::Tcp);
    client.log_in(&mut world); // one: the 401
    let mut long = |world: &mut World| {
        let long = client.sealed(world, Method::ALLOCATE, |builder| {
            builder.attribute(AttributeType::SOFTWARE, &[b'x'; 1500]);
        });
        let fate = world.from_client(&client.path, &long);
        if let Fate::Reply(reply) = fate {
            return Ok(client.decode(&long, reply).code());
        }
        Err(fate.dropped())
    };
    assert_eq!(long(&mut world), Ok(Some(400)), "a request too long to wait is told so");
    assert_eq!(long(&mut world), Err(DropReason::ProvedAddressBudget), "there were two");
}
