//! RFC 8656 §7: the checks of Allocate.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

#[test]
fn without_credentials_there_is_no_allocation_unless_the_relay_is_open() {
    // 8656-7.2-01
    let mut world = World::new();
    let mut client = Client::new(1);
    let request = client.bare(Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert_eq!(client.exchange(&mut world, &request).code(), Some(401));
    assert_eq!(world.server.allocation_count(), 0);

    let mut policy = policy();
    policy.auth.open = true;
    let mut world = World::with(policy);
    let reply = client.exchange(&mut world, &request);
    assert_eq!((reply.code(), reply.sealed), (None, false));
    assert_eq!(reply.relayed().len(), 1);
    assert!(!reply.has(AttributeType::SOFTWARE));
}

#[test]
fn a_second_allocate_on_the_five_tuple_gets_437() {
    // 8656-7.2-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.try_allocate(&mut world, |_| ()).refused(437);
    // Before anything else that is wrong with it.
    client.ask(&mut world, Method::ALLOCATE, |_| ()).refused(437);
    let mut bob = Client::new(1).as_bob();
    bob.try_allocate(&mut world, |_| ()).refused(437);
    assert!(world.is_open(relayed));
    assert_eq!(world.server.allocation_count(), 1);
}

#[test]
fn the_same_transaction_of_another_user_is_no_retransmission() {
    // 8656-7.2-02
    let mut world = World::new();
    let mut alice = Client::new(1);
    alice.allocate(&mut world);
    // Bob's second transaction has the id of Alice's second one.
    let mut bob = Client::new(1).as_bob();
    bob.try_allocate(&mut world, |_| ()).refused(437);
}

#[test]
fn requested_transport_must_be_there_and_udp() {
    // 8656-7.2-03, 8656-7.2-04, 8656-18.8-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.ask(&mut world, Method::ALLOCATE, |_| ()).refused(400);
    let transport = |value: &'static [u8]| {
        move |builder: &mut MessageBuilder<'_>| {
            builder.attribute(AttributeType::REQUESTED_TRANSPORT, value);
        }
    };
    client.ask(&mut world, Method::ALLOCATE, transport(&[17, 0])).refused(400);
    for protocol in [[132, 0, 0, 0], [33, 0, 0, 0], [255, 0, 0, 0], [6, 0, 0, 0]] {
        let reply = client.ask(&mut world, Method::ALLOCATE, |builder| {
            builder.attribute(AttributeType::REQUESTED_TRANSPORT, &protocol);
        });
        reply.refused(442);
    }
    client.ask(&mut world, Method::ALLOCATE, transport(&[17, 255, 255, 255])).success();
}

#[test]
fn dont_fragment_is_refused_only_where_df_cannot_be_read() {
    // 8656-7.2-05, 8656-3.7-01, 8656-13-03, 8656-18.9-01
    let mut world = World::new();
    let mut v4 = Client::new(1);
    for family in
        [AttributeType::REQUESTED_ADDRESS_FAMILY, AttributeType::ADDITIONAL_ADDRESS_FAMILY]
    {
        let reply = v4.try_allocate(&mut world, |builder| {
            builder.dont_fragment().number_u8(family, 2);
        });
        let reply = reply.refused(420);
        assert_eq!(reply.unknown(), [AttributeType::DONT_FRAGMENT]);
    }
    let reply = v4.try_allocate(&mut world, |builder| {
        builder.dont_fragment();
    });
    reply.success();
    for (port, family) in [(2, 1), (3, 2)] {
        let reply = Client::v6(port).try_allocate(&mut world, |builder| {
            builder.dont_fragment().requested_address_family(family);
        });
        reply.success();
    }
}

#[test]
fn a_reservation_token_stands_alone() {
    // 8656-7.2-06, 8656-18.10-01
    let mut world = World::new();
    let mut client = Client::new(1);
    type Write = fn(&mut MessageBuilder<'_>);
    let together: [Write; 4] = [
        |b| _ = b.reservation_token([1; 8]).even_port(false),
        |b| _ = b.reservation_token([1; 8]).requested_address_family(1),
        |b| _ = b.reservation_token([1; 8]).additional_address_family(2),
        |b| _ = b.attribute(AttributeType::RESERVATION_TOKEN, &[1; 7]),
    ];
    for write in together {
        client.try_allocate(&mut world, write).refused(400);
    }
}

#[test]
fn an_unknown_token_gets_508() {
    // 8656-7.2-07
    let mut world = World::new();
    let mut client = Client::new(1);
    let reply = client.try_allocate(&mut world, |builder| {
        builder.reservation_token([1; 8]);
    });
    reply.refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::BadReservationToken));
}

#[test]
fn one_family_or_both_but_not_two_questions() {
    // 8656-7.2-08
    let mut world = World::new();
    let reply = Client::new(1).try_allocate(&mut world, |builder| {
        builder.requested_address_family(1).additional_address_family(2);
    });
    reply.refused(400);
}

#[test]
fn a_family_that_is_not_served_gets_440() {
    // 8656-7.2-09
    let mut v4_only = policy();
    v4_only.relay.remove(1);
    let mut world = World::with(v4_only);
    let mut client = Client::new(1);
    for family in [2, 7] {
        let reply = client.try_allocate(&mut world, |builder| {
            builder.requested_address_family(family);
        });
        reply.refused(440);
    }
    let mut v6_only = policy();
    v6_only.relay.remove(0);
    let mut world = World::with(v6_only);
    let mut client = Client::new(1);
    client.try_allocate(&mut world, |_| ()).refused(440);
    client.allocate_v6(&mut world);
}

#[test]
fn the_default_family_is_a_choice() {
    for (default_family, expected) in [
        (DefaultFamily::V4, IpFamily::V4),
        (DefaultFamily::V6, IpFamily::V6),
        (DefaultFamily::Client, IpFamily::V4),
    ] {
        let mut world = World::with(Policy { default_family, ..policy() });
        let reply = Client::new(1).try_allocate(&mut world, |_| ()).success();
        assert_eq!(IpFamily::of(reply.relayed()[0].ip()), expected, "{default_family:?}");
    }
    let mut world = World::with(Policy { default_family: DefaultFamily::Client, ..policy() });
    let reply = Client::v6(2).try_allocate(&mut world, |_| ()).success();
    assert_eq!(IpFamily::of(reply.relayed()[0].ip()), IpFamily::V6);
    let reply = Client::v6(3).try_allocate(&mut world, |builder| {
        builder.requested_address_family(1);
    });
    let relayed = reply.success().relayed()[0];
    assert_eq!(IpFamily::of(relayed.ip()), IpFamily::V4, "a request counts before the default");
}

#[test]
fn no_family_asked_means_ipv4() {
    // 8656-7.2-10
    let mut world = World::new();
    assert!(Client::v6(1).allocate(&mut world).is_ipv4());
    let reply = Client::v6(2).try_allocate(&mut world, |builder| {
        builder.attribute(AttributeType::REQUESTED_ADDRESS_FAMILY, &[1, 255, 255, 255]);
    });
    // 8656-18.6-01
    assert!(reply.success().relayed()[0].is_ipv4());
}

#[test]
fn a_reserved_pair_has_one_family() {
    // 8656-7.2-11
    let mut world = World::new();
    let reply = Client::new(1).try_allocate(&mut world, |builder| {
        builder.even_port(true).additional_address_family(2);
    });
    reply.refused(400);
    let reply = Client::new(2).try_allocate(&mut world, |builder| {
        builder.even_port(false).additional_address_family(2);
    });
    assert!(reply.success().relayed().iter().all(|relayed| relayed.port().is_multiple_of(2)));
}

#[test]
fn an_even_port_that_is_not_to_be_had_gets_508() {
    // 8656-7.2-12
    let mut world = World::with(with_ports(50_000, 50_002));
    let even = |reserve| move |builder: &mut MessageBuilder<'_>| _ = builder.even_port(reserve);
    Client::new(1).try_allocate(&mut world, even(true)).success();
    Client::new(2).try_allocate(&mut world, even(true)).refused(508);
    Client::new(3).try_allocate(&mut world, even(false)).success();
    Client::new(4).try_allocate(&mut world, even(false)).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::PortsExhausted));
}

#[test]
fn without_a_file_for_a_port_the_system_is_exhausted() {
    let mut world = World::new();
    world.policy.relay.iter().for_each(|relay| relay.ports.limit(1));
    Client::new(1).try_allocate(&mut world, |_| ()).success();
    Client::new(2).try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::SystemExhausted), "ports are free");
}

#[test]
fn an_additional_family_is_ipv6() {
    // 8656-7.2-13, 8656-18.11-01
    let mut world = World::new();
    let mut client = Client::new(1);
    for value in [&[1, 0, 0, 0][..], &[7, 0, 0, 0], &[2]] {
        let reply = client.try_allocate(&mut world, |builder| {
            builder.attribute(AttributeType::ADDITIONAL_ADDRESS_FAMILY, value);
        });
        reply.refused(400);
    }
}

#[test]
fn an_additional_family_may_come_under_its_draft_number_where_old_clients_are_served() {
    let kind = AttributeType::DRAFT_ADDITIONAL_ADDRESS_FAMILY;
    for (rfc5766_clients, addresses) in [(false, 1), (true, 2)] {
        let mut world = World::with(Policy { rfc5766_clients, ..policy() });
        let reply = Client::new(1).try_allocate(&mut world, |builder| {
            builder.number_u8(kind, 2);
        });
        let relayed = reply.success().relayed().len();
        assert_eq!(relayed, addresses, "rfc5766_clients = {rfc5766_clients}");
    }
}

#[test]
fn a_dual_allocation_has_one_address_of_each_family() {
    // 8656-7.2-14
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    assert!(v4.is_ipv4() && v6.is_ipv6());
    assert!(world.is_open(v4) && world.is_open(v6));
    assert_eq!(world.registry.0.lock().unwrap().allocations(), 1, "it counts once");
}

#[test]
fn one_half_of_a_dual_allocation_will_do() {
    // 8656-7.2-15
    let dual = |builder: &mut MessageBuilder<'_>| _ = builder.additional_address_family(2);
    let mut v4_only = policy();
    v4_only.relay.remove(1);
    let reply = Client::new(1).try_allocate(&mut World::with(v4_only), dual).success();
    assert_eq!(reply.address_error(), Some((2, 440)));
    assert!(reply.relayed().len() == 1 && reply.relayed()[0].is_ipv4());

    let mut v6_only = policy();
    v6_only.relay.remove(0);
    let reply = Client::new(1).try_allocate(&mut World::with(v6_only), dual).success();
    assert_eq!(reply.address_error(), Some((1, 440)));
    assert!(reply.relayed().len() == 1 && reply.relayed()[0].is_ipv6());

    // No port is left for one of the families.
    let mut world = World::with(with_ports(50_000, 50_000));
    Client::new(1).allocate(&mut world);
    let reply = Client::new(2).try_allocate(&mut world, dual).success();
    assert_eq!(reply.address_error(), Some((1, 508)));
    Client::new(3).try_allocate(&mut world, dual).refused(508);

    // If one socket cannot be opened, neither is opened.
    let mut world = World::new();
    world.broken.insert(IpFamily::V6);
    let mut client = Client::new(4);
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17).additional_address_family(2);
    });
    let reply = client.exchange(&mut world, &request).success();
    assert_eq!(reply.address_error(), Some((2, 508)));
    let again = client.exchange(&mut world, &request).success();
    assert_eq!(reply.bytes, again.bytes, "also when retransmitted");
    world.broken.insert(IpFamily::V4);
    Client::new(5).try_allocate(&mut world, dual).refused(508);
}

#[test]
fn redirection_needs_credentials_and_is_sealed() {
    // 8656-7.2-18, 8489-10-01, 8489-10-02, 8489-14.8-01, 8489-14.8-02, 8489-14.15-01
    let (v4, v6) = (addr("192.0.2.200:3478"), addr("[2001:db8:2::2]:3478"));
    let domain = Some("turn2.example.org".into());
    let alternates = AlternateServers { domain, ..AlternateServers::of(vec![v4, v6]) };
    let mut world = World::with(Policy { alternates, ..policy() });
    for (mut client, first) in [(Client::new(1), v4), (Client::v6(1), v6)] {
        let bare = client.bare(Method::ALLOCATE, |_| ());
        assert_eq!(client.exchange(&mut world, &bare).code(), Some(401));
        let reply = client.try_allocate(&mut world, |_| ()).refused(300);
        let message = reply.message();
        let servers: Vec<_> = message
            .attributes()
            .filter(|attribute| attribute.kind == AttributeType::ALTERNATE_SERVER)
            .map(|attribute| value::address(attribute.value).unwrap())
            .collect();
        assert_eq!((servers.len(), servers[0]), (2, first), "its own family first");
        assert!(!reply.has(AttributeType::ALTERNATE_DOMAIN), "there is no certificate");
        // Errors in the request are reported first.
        client.ask(&mut world, Method::ALLOCATE, |_| ()).refused(400);
    }
    // 8489-10-03
    let reply = Client::new(2).over(Transport::Tls).try_allocate(&mut world, |_| ());
    let domain = reply.first(AttributeType::ALTERNATE_DOMAIN).unwrap().to_vec();
    assert_eq!(domain, b"turn2.example.org");
    // 8489-12-02
    let mut client = Client::new(3);
    let binding = client.bare(Method::BINDING, |_| ());
    assert_eq!(client.exchange(&mut world, &binding).code(), None);
    // Without a server of the client's family there is nowhere to send it.
    let alternates = AlternateServers::of(vec![v4]);
    world.apply(Policy { alternates, ..world.policy.clone() });
    Client::v6(4).allocate(&mut world);
}
