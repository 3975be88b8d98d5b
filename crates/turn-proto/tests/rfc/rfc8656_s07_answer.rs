//! RFC 8656 §7: the success of Allocate: address, response, session record.

use std::collections::BTreeSet;

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

#[test]
fn a_new_allocation_is_empty() {
    // 8656-7.2-19
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
}

#[test]
fn a_token_is_good_once_for_its_user_anywhere() {
    // 8656-7.2-20, 8656-7.2-22
    let mut world = World::new();
    for port in 1..=10 {
        let mut client = Client::new(port);
        let reply = client.try_allocate(&mut world, |builder| {
            builder.even_port(true);
        });
        let reply = reply.success();
        let (even, token) = (reply.relayed()[0], reply.token().unwrap());
        assert!(even.port().is_multiple_of(2));
        let redeem = |builder: &mut MessageBuilder<'_>| _ = builder.reservation_token(token);
        let mut other = Client::v6(port).over(Transport::Tcp);
        let odd = other.try_allocate(&mut world, redeem).success();
        assert_eq!(odd.relayed(), [std::net::SocketAddr::new(even.ip(), even.port() + 1)]);
        assert_eq!(odd.token(), None);
        Client::new(port + 100).try_allocate(&mut world, redeem).refused(508);
    }
}

#[test]
fn an_even_port_alone_makes_no_token() {
    // 8656-7.2-21, 8656-18.7-01
    let mut world = World::new();
    for port in 1..=10 {
        let reply = Client::new(port).try_allocate(&mut world, |builder| {
            builder.attribute(AttributeType::EVEN_PORT, &[0x7F]);
        });
        let reply = reply.success();
        assert!(reply.relayed()[0].port().is_multiple_of(2));
        assert_eq!(reply.token(), None);
    }
    let malformed = Client::new(11).try_allocate(&mut world, |builder| {
        builder.attribute(AttributeType::EVEN_PORT, &[0, 0]);
    });
    malformed.refused(400);
}

#[test]
fn a_reservation_is_held_for_its_time() {
    // 8656-7.2-23, 8656-7.2-24
    let mut world = World::new();
    let reserve = |world: &mut World, port| {
        let reply = Client::new(port).try_allocate(world, |builder| {
            builder.even_port(true);
        });
        reply.success().token().unwrap()
    };
    let (first, second) = (reserve(&mut world, 1), reserve(&mut world, 2));
    world.advance(secs(29));
    let reply = Client::new(3).try_allocate(&mut world, |builder| {
        builder.reservation_token(first);
    });
    reply.success();
    world.advance(secs(1));
    assert_eq!(world.registry.0.lock().unwrap().reservations(), 0, "its port is given back");
    let reply = Client::new(4).try_allocate(&mut world, |builder| {
        builder.reservation_token(second);
    });
    reply.refused(508);
}

#[test]
fn a_refusal_does_not_cost_the_token() {
    let mut policy = policy();
    policy.quotas.allocations_per_user = 1;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let reply = client.try_allocate(&mut world, |builder| {
        builder.even_port(true);
    });
    let token = reply.token().unwrap();
    let redeem = |builder: &mut MessageBuilder<'_>| _ = builder.reservation_token(token);
    Client::new(2).try_allocate(&mut world, redeem).refused(486);
    client.refresh(&mut world, Some(0)).success();
    Client::new(3).try_allocate(&mut world, redeem).success();
}

#[test]
fn ports_are_random_and_in_their_range() {
    // 8656-7.2-25, 8656-7.2-26, 8656-7.2-27
    let mut world = World::new();
    let ports: Vec<u16> =
        (1..=100).map(|port| Client::new(port).allocate(&mut world).port()).collect();
    assert!(ports.iter().all(|port| *port >= 49_152));
    let steps: BTreeSet<i32> =
        ports.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0])).collect();
    assert!(steps.len() > 90, "{} different steps", steps.len());
    assert!(PortRange::new(1023, 2000).is_none());
}

#[test]
fn lifetimes_are_between_the_default_and_the_maximum() {
    // 8656-7.2-28, 8656-7.2-29, 8656-7.2-30
    let mut world = World::new();
    for (port, asked, granted) in [
        (1, None, 600),
        (2, Some(1), 600),
        (3, Some(0), 600),
        (4, Some(1800), 1800),
        (5, Some(1_000_000), 3600),
        (6, Some(u32::MAX), 3600),
    ] {
        let mut client = Client::new(port);
        let reply = client.try_allocate(&mut world, |builder| {
            if let Some(asked) = asked {
                builder.lifetime(asked);
            }
        });
        assert_eq!(reply.success().lifetime(), granted, "{asked:?}");
        client.refresh(&mut world, None).success();
    }
    // 8656-18.2-01
    let malformed = Client::new(7).try_allocate(&mut world, |builder| {
        builder.attribute(AttributeType::LIFETIME, &[0, 1]);
    });
    malformed.refused(400);
}

#[test]
fn the_answer_has_all_it_should_and_nothing_else() {
    // 8656-7.2-31, 8656-7.2-33
    let mut world = World::new();
    let mut client = Client::v6(1).sealing(Sealing::Sha256);
    let reply = client.try_allocate(&mut world, |builder| {
        builder.even_port(true).lifetime(700);
    });
    let reply = reply.success();
    let kinds: Vec<_> = reply.message().attributes().map(|attribute| attribute.kind).collect();
    assert_eq!(
        kinds,
        [
            AttributeType::XOR_RELAYED_ADDRESS,
            AttributeType::LIFETIME,
            AttributeType::XOR_MAPPED_ADDRESS,
            AttributeType::RESERVATION_TOKEN,
            AttributeType::SOFTWARE,
        ]
    );
    assert_eq!(reply.mapped(), client.path.five_tuple.client.0);
    assert_eq!(reply.lifetime(), 700);
}

#[test]
fn a_retransmitted_allocate_gets_the_same_answer() {
    // 8656-7.2-32, 8489-6.3.1-02, 8489-6.3.1-03
    let mut world = World::new();
    let mut client = Client::new(1);
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17).even_port(true);
    });
    let first = client.exchange(&mut world, &request).success();
    for elapsed in [0, 10, 39] {
        world.now.instant = Instant::ZERO + secs(1000 + elapsed);
        let again = client.exchange(&mut world, &request).success();
        assert_eq!((again.relayed(), again.token()), (first.relayed(), first.token()));
        assert_eq!(again.lifetime(), 600 - elapsed as u32, "what is left");
    }
    assert_eq!(world.server.allocation_count(), 1);
    assert_eq!(world.opened, 1);
}

#[test]
fn a_retransmission_is_answered_though_the_server_drains_or_redirects() {
    // 8656-7.2-32
    let mut world = World::new();
    let mut client = Client::new(1);
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    client.exchange(&mut world, &request).success();
    world.server.drain(true);
    let alternates = AlternateServers::of(vec![addr("192.0.2.200:3478")]);
    world.apply(Policy { alternates, ..world.policy.clone() });
    client.exchange(&mut world, &request).success();
    client.refresh(&mut world, None).success();
}

#[test]
fn no_port_left_gets_508_and_says_nothing_about_others() {
    // 8656-7.4-01
    let mut world = World::with(with_ports(50_000, 50_001));
    let mut first = Client::new(1);
    first.allocate(&mut world);
    Client::new(2).allocate(&mut world);
    let reply = Client::new(3).as_bob().try_allocate(&mut world, |_| ()).refused(508);
    let kinds: Vec<_> = reply.message().attributes().map(|attribute| attribute.kind).collect();
    assert_eq!(kinds, [AttributeType::ERROR_CODE, AttributeType::SOFTWARE]);
    first.refresh(&mut world, Some(0)).success();
    Client::new(3).as_bob().allocate(&mut world);
}

#[test]
fn a_draining_server_makes_no_new_allocations() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    world.server.drain(true);
    Client::new(2).try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::Draining));
    client.refresh(&mut world, None).success();
    client.permit(&mut world, &[PEER]).success();
    world.server.drain(false);
    Client::new(2).allocate(&mut world);
}

#[test]
fn several_relay_addresses_are_all_used() {
    let mut policy = with_ports(50_000, 50_001);
    let second = RelayAddress {
        local: ip("203.0.113.2"),
        public: ip("203.0.113.2"),
        ports: RelayPorts::new(),
        is_present: true,
    };
    policy.relay.push(second);
    let mut world = World::with(policy);
    let relayed: BTreeSet<_> = (1..=4).map(|port| Client::new(port).allocate(&mut world)).collect();
    assert_eq!(relayed.len(), 4);
    Client::new(5).try_allocate(&mut world, |_| ()).refused(508);
}

mod waiting {
    //! Between a request and its answer.

    use super::*;

    fn allocate(builder: &mut MessageBuilder<'_>) {
        builder.requested_transport(17);
    }

    fn alice() -> UserAnswer {
        let keys = LongTermKeys::new("alice", REALM, "wonderland").expect("plain ASCII");
        let keys = UserKeys { md5: Secret::new(keys.md5), sha256: None };
        UserAnswer::Known(User { name: "alice".into(), keys, allocations_max: None })
    }

    #[test]
    fn success_is_answered_only_when_the_port_is_open() {
        let mut world = World::new();
        let mut client = Client::new(1);
        let request = client.sealed(&mut world, Method::ALLOCATE, allocate);
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        assert!(matches!(world.held[..], [Command::FindUser { .. }]));
        // Retransmissions of what waits are not taken twice.
        let again = world.from_client(&client.path, &request).dropped();
        assert_eq!(again, DropReason::AlreadyPending);
        let held = std::mem::take(&mut world.held);
        world.hold = false;
        let Command::FindUser { pending, .. } = held[0] else { panic!() };
        world.hold = true;
        let found = Event::UserFound { pending, answer: alice() };
        assert!(world.handle_event(found.clone()).is_none());
        world.carry_out();
        let Command::OpenRelay { pending, relay, at } = world.held[0] else { panic!() };
        let again = world.from_client(&client.path, &request).dropped();
        assert_eq!(again, DropReason::AlreadyPending);
        assert_eq!(world.server.allocation_count(), 0);
        // Another Allocate of the same 5-tuple arrives while the first waits. The first takes
        // effect.
        world.hold = false;
        client.try_allocate(&mut world, |_| ()).refused(437);
        world.held.clear();
        assert!(world.handle_event(found).is_none(), "an answer counts once");
        world.sockets.insert(relay, at);
        let opened = Event::RelayOpened { pending, relay, result: Ok(()) };
        let (to, bytes) = world.handle_event(opened.clone()).unwrap();
        assert_eq!(to, client.path);
        assert_eq!(client.decode(&request, bytes).success().relayed(), [at.0]);
        assert!(world.handle_event(opened).is_none(), "nor does this one twice");
    }

    #[test]
    fn a_port_that_somebody_else_holds_is_replaced() {
        let mut world = World::with(with_ports(50_000, 50_009));
        world.taken_ports = (50_000..50_009).collect();
        assert_eq!(Client::new(1).allocate(&mut world).port(), 50_009);
        assert!(world.opened <= 10, "no port is tried twice");
        // The ports tried are free again afterwards: they may be ours by then.
        world.taken_ports.clear();
        for port in 2..=10 {
            Client::new(port).allocate(&mut world);
        }
    }

    #[test]
    fn ports_are_not_tried_for_ever() {
        let mut world = World::new();
        world.taken_ports = (0..=u16::MAX).collect();
        Client::new(1).try_allocate(&mut world, |_| ()).refused(508);
        assert_eq!(world.opened, limits::PORT_ATTEMPTS_MAX);
        assert_eq!(world.policy.relay[0].ports.used(), 0);
    }

    #[test]
    fn a_system_that_is_exhausted_is_not_asked_again() {
        let mut world = World::new();
        world.broken.insert(IpFamily::V4);
        Client::new(1).try_allocate(&mut world, |_| ()).refused(508);
        assert_eq!(world.opened, 1);
        assert_eq!(world.refusals().last(), Some(&Refusal::SystemExhausted));
    }

    #[test]
    fn a_reserved_port_that_is_gone_gets_508() {
        let mut world = World::new();
        let reply = Client::new(1).try_allocate(&mut world, |b| _ = b.even_port(true));
        let (token, port) = (reply.token().unwrap(), reply.relayed()[0].port() + 1);
        world.taken_ports.insert(port);
        let reply = Client::new(2).try_allocate(&mut world, |b| _ = b.reservation_token(token));
        reply.refused(508);
        assert_eq!(world.policy.relay[0].ports.used(), 1);
    }

    #[test]
    fn nobody_waits_for_ever_and_nothing_leaks() {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.log_in(&mut world);
        let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).additional_address_family(2);
        });
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let answers = {
            let held = std::mem::take(&mut world.held);
            assert_eq!(held.len(), 1);
            world.held = held;
            world.release()
        };
        assert_eq!(answers.len(), 1, "answered as soon as all is there");
        client.refresh(&mut world, Some(0)).success();

        // The user is known by now, the relay sockets never come.
        let mut client = Client::new(2);
        client.log_in(&mut world);
        let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).additional_address_family(2);
        });
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let find = world.held.remove(0);
        world.hold = false;
        let Command::FindUser { pending, .. } = find else { panic!() };
        world.hold = true;
        world.handle_event(Event::UserFound { pending, answer: alice() });
        world.carry_out();
        assert_eq!(world.held.len(), 2);
        assert_eq!(world.policy.relay[0].ports.used(), 1);
        world.advance(limits::PENDING_LIFETIME);
        assert!(world.held[2..].iter().all(|c| matches!(c, Command::CloseRelay { .. })));
        assert_eq!(world.held.len(), 4);
        assert_eq!(world.policy.relay[0].ports.used() + world.policy.relay[1].ports.used(), 0);
        assert_eq!(world.registry.0.lock().unwrap().allocations(), 0);
        // A socket that opens too late is closed again.
        let Command::OpenRelay { pending, relay, .. } = world.held[0] else { panic!() };
        world.held.clear();
        let late = Event::RelayOpened { pending, relay, result: Ok(()) };
        assert!(world.handle_event(late).is_none());
        world.carry_out();
        let closed =
            matches!(world.held[..], [Command::CloseRelay { relay: this }] if this == relay);
        assert!(closed, "{:?}", world.held);
    }

    #[test]
    fn waiting_requests_are_bounded() {
        const SECRET: &[u8] = b"0123456789abcdef";
        const TIME_LIMITED: &str = "1900003600:bob";
        let mut policy = policy();
        let secret = Secret::new(SECRET.into());
        policy.auth.secrets.push(SharedSecret { name: "web".into(), secret });
        let mut world = World::with(policy);
        let mut client = Client::new(1);
        client.log_in(&mut world);
        world.hold = true;
        for number in 0..limits::PENDING_USERS_MAX {
            let mut each = Client::at(&format!("{}.{}.2.9:1", 20 + number / 256, number % 256));
            let request = each.sealed(&mut world, Method::ALLOCATE, allocate);
            assert!(matches!(world.from_client(&each.path, &request), Fate::Wait));
        }
        let request = client.sealed(&mut world, Method::ALLOCATE, allocate);
        let fate = world.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::TooManyPending);
        // Clients with a look-up do not block a client that needs no look-up.
        let mut other = Client::new(2);
        other.user = TIME_LIMITED;
        other.password = time_limited_password(SECRET, TIME_LIMITED).leak();
        other.log_in(&mut world);
        let opened = other.sealed(&mut world, Method::ALLOCATE, allocate);
        assert!(matches!(world.from_client(&other.path, &opened), Fate::Wait));
        assert!(matches!(world.held.last(), Some(Command::OpenRelay { .. })));
        world.advance(limits::PENDING_LIFETIME);
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    }

    #[test]
    fn a_database_that_cannot_be_asked_is_a_server_error() {
        let mut world = World::new();
        let mut client = Client::new(1);
        let request = client.sealed(&mut world, Method::ALLOCATE, allocate);
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let Command::FindUser { pending, .. } = world.held[0] else { panic!() };
        let unavailable = Event::UserFound { pending, answer: UserAnswer::Unavailable };
        let (_, bytes) = world.handle_event(unavailable).unwrap();
        assert_eq!(client.decode(&request, bytes).code(), Some(500));
    }

    #[test]
    fn a_relay_address_that_goes_meanwhile_takes_the_allocation_with_it() {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.log_in(&mut world);
        let mut policy = world.policy.clone();
        let request = client.sealed(&mut world, Method::ALLOCATE, allocate);
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let find = std::mem::take(&mut world.held);
        world.hold = false;
        policy.relay.remove(0);
        world.held = find;
        world.apply(policy);
        let answers = world.release();
        let reply = client.decode(&request, answers[0].1.clone());
        reply.refused(440);
    }

    #[test]
    fn a_socket_on_an_address_that_went_meanwhile_is_closed() {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.log_in(&mut world);
        let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).additional_address_family(2);
        });
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let Command::FindUser { pending, .. } = world.held.remove(0) else { panic!() };
        world.handle_event(Event::UserFound { pending, answer: alice() });
        world.carry_out();
        let all = world.policy.relay.clone();
        let mut policy = world.policy.clone();
        policy.relay.remove(0);
        world.apply(policy);
        let answers = world.release();
        let reply = client.decode(&request, answers[0].1.clone()).success();
        assert_eq!((reply.relayed().len(), reply.address_error()), (1, Some((1, 508))));
        assert!(reply.relayed()[0].is_ipv6());
        assert_eq!((world.sockets.len(), all[0].ports.used()), (1, 0));
        world.check();
    }

    #[test]
    fn the_end_of_the_server_ends_what_waits() {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.allocate(&mut world);
        let mut other = Client::new(2);
        let request = other.sealed(&mut world, Method::ALLOCATE, allocate);
        world.hold = true;
        assert!(matches!(world.from_client(&other.path, &request), Fate::Wait));
        world.held.clear();
        world.hold = false;
        world.server.end_all(world.now, EndReason::Shutdown);
        world.carry_out();
        world.check();
        assert_eq!(world.ends(), [EndReason::Shutdown]);
        assert!(world.sockets.is_empty());
        assert_eq!(world.server.poll_timeout(), None);
    }
}

/// Another user of the realm may have the token, not the port.
#[test]
fn a_reservation_is_redeemed_by_its_user() {
    let mut world = World::new();
    let reply = Client::new(1).try_allocate(&mut world, |b| _ = b.even_port(true)).success();
    let token = reply.token().unwrap();
    let redeem = |builder: &mut MessageBuilder<'_>| _ = builder.reservation_token(token);
    Client::new(2).as_bob().try_allocate(&mut world, redeem).refused(508);
    Client::new(3).try_allocate(&mut world, redeem).success();
}
