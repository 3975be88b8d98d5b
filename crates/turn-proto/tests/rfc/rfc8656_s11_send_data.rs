//! RFC 8656 §11: Send and Data indications, ICMP.

use answer::DataIndication;
use stun_wire::*;
use turn_proto::*;
use turn_types::IpFamily;

use crate::support::*;

fn permitted(world: &mut World) -> (Client, std::net::SocketAddr) {
    let mut client = Client::new(1);
    let relayed = client.allocate(world);
    client.permit(world, &[PEER]).success();
    (client, relayed)
}

#[test]
fn a_send_without_peer_or_data_is_dropped() {
    // 8656-11.2-01
    let mut world = World::new();
    let (mut client, _) = permitted(&mut world);
    let peer = AttributeType::XOR_PEER_ADDRESS;
    let indications = [
        client.indication(Method::SEND, |_| ()),
        client.indication(Method::SEND, |b| {
            b.data(b"x");
        }),
        client.indication(Method::SEND, |b| {
            b.xor_address(peer, addr(PEER));
        }),
        client.indication(Method::SEND, |b| {
            b.attribute(peer, &[0, 1, 2]).data(b"x");
        }),
        client.indication(Method::SEND, |b| {
            b.xor_address(peer, addr("192.0.2.10:0")).data(b"x");
        }),
    ];
    for indication in indications {
        let fate = world.from_client(&client.path, &indication);
        assert_eq!(fate.dropped(), DropReason::MalformedSend);
    }
}

#[test]
fn the_first_peer_and_the_first_data_count() {
    // 8489-14-02
    let mut world = World::new();
    let (mut client, _) = permitted(&mut world);
    let peer = AttributeType::XOR_PEER_ADDRESS;
    let indication = client.indication(Method::SEND, |b| {
        b.data(b"first").xor_address(peer, addr(PEER)).data(b"second");
        b.xor_address(peer, addr("192.0.2.99:1"));
    });
    assert_eq!(world.from_client(&client.path, &indication).to_peer(), b"first");
}

#[test]
fn an_empty_datagram_goes_both_ways() {
    // 8656-11.2-02, 8656-11.3-01
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    assert_eq!(client.send(&mut world, PEER, b"").to_peer(), b"");
    let bytes = world.from_peer(relayed, PEER, b"").to_client();
    assert_eq!(DataIndication::decode(&bytes).data.unwrap(), b"");
}

#[test]
fn send_neither_makes_nor_refreshes_a_permission() {
    // 8656-11.2-04, 8656-21.2.1-01
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    let stranger = "192.0.2.11:1";
    assert_eq!(client.send(&mut world, stranger, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(world.from_peer(relayed, stranger, b"x").dropped(), DropReason::NoPermission);
    for _ in 0..299 {
        world.advance(secs(1));
        client.send(&mut world, PEER, b"x").to_peer();
        world.from_peer(relayed, PEER, b"x").to_client();
    }
    world.advance(secs(1));
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
}

#[test]
fn a_datagram_leaves_from_the_relayed_address_untouched() {
    // 8656-11.2-06
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    for len in [1, 2, 3, 4, 5, 1400, 65_000] {
        let payload: Vec<u8> = (0..len).map(|byte| (byte % 251) as u8).collect();
        let fate = client.send(&mut world, PEER, &payload);
        let Fate::ToPeer { from, to, payload: sent, .. } = fate else { panic!("{fate:?}") };
        assert_eq!((from.0, to, sent), (relayed, peer(PEER), payload));
    }
}

#[test]
fn a_peer_of_the_other_family_is_dropped() {
    // 8656-11.2-07
    let mut world = World::new();
    let (mut client, _) = permitted(&mut world);
    assert_eq!(client.send(&mut world, PEER_V6, b"x").dropped(), DropReason::PeerFamily);
}

#[test]
fn data_carries_the_peer_and_the_payload() {
    // 8656-11.3-01, 8656-11.3-02, 8656-18.3-01, 8656-18.4-01
    let mut world = World::new();
    let mut client = Client::v6(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.permit(&mut world, &[PEER, PEER_V6]).success();
    for (relayed, from) in [(v4, PEER), (v6, PEER_V6)] {
        for len in [0, 1, 2, 3, 4, 5, 1400] {
            let payload = vec![0xAB; len];
            let fate = world.from_peer(relayed, from, &payload);
            let Fate::ToClient { to, from: server, bytes, .. } = fate else {
                panic!("{fate:?}");
            };
            assert_eq!(to, client.path.five_tuple.client);
            assert_eq!(server, client.path.five_tuple.server.ip());
            let indication = DataIndication::decode(&bytes);
            assert_eq!(indication.peer, addr(from));
            assert_eq!(indication.data.unwrap(), payload);
        }
    }
}

#[test]
fn a_datagram_is_relayed_whole_or_not_at_all() {
    // 8656-11.3-03
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    let most = limits::UDP_PAYLOAD_MAX - 36;
    let most = most - most % 4;
    let bytes = world.from_peer(relayed, PEER, &vec![1; most]).to_client();
    assert_eq!(DataIndication::decode(&bytes).data.unwrap().len(), most);
    for len in [most + 1, 65_507] {
        let fate = world.from_peer(relayed, PEER, &vec![1; len]);
        assert_eq!(fate.dropped(), DropReason::TooLong);
    }
    client.bind(&mut world, 0x4000, PEER).success();
    let fate = world.from_peer(relayed, PEER, &vec![1; 65_503]);
    assert_eq!(fate.to_client().len(), 65_507);
    let fate = world.from_peer(relayed, PEER, &vec![1; 65_504]);
    assert_eq!(fate.dropped(), DropReason::TooLong);
}

#[test]
fn transaction_ids_of_our_own_are_random() {
    // 8489-5-07
    let mut world = World::new();
    let (_, relayed) = permitted(&mut world);
    let ids: std::collections::BTreeSet<_> = (0..1000)
        .map(|_| DataIndication::decode(&world.from_peer(relayed, PEER, b"").to_client()).id.0)
        .collect();
    assert_eq!(ids.len(), 1000);
    for position in 0..12 {
        let values: std::collections::BTreeSet<_> = ids.iter().map(|id| id[position]).collect();
        assert!(values.len() > 200, "byte {position} takes {} values", values.len());
    }
}

#[test]
fn an_unknown_required_attribute_drops_the_indication() {
    // 8489-6.3.2-01
    let mut world = World::new();
    let (mut client, _) = permitted(&mut world);
    for (kind, dropped) in [(0x7E05, true), (0x0010, true), (0x0021, true), (0xFE05, false)] {
        let indication = client.indication(Method::SEND, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER)).data(b"x");
            b.attribute(AttributeType(kind), b"????");
        });
        let fate = world.from_client(&client.path, &indication);
        if dropped {
            assert_eq!(fate.dropped(), DropReason::UnknownAttribute, "{kind:#x}");
        } else {
            assert_eq!(fate.to_peer(), b"x", "{kind:#x}");
        }
    }
}

#[test]
fn icmp_errors_about_permitted_peers_are_reported() {
    // 8656-11.5-01, 8656-11.5-03, 8656-18.13-01, 8656-18.13-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.permit(&mut world, &[PEER, PEER_V6]).success();
    for (relayed, about, (kind, code, data), told) in [
        (v4, PEER, (3, 3, 7), 0),
        (v4, "192.0.2.10:0", (3, 1, 0), 0),
        (v4, PEER, (3, 4, 1400), 1400),
        (v4, PEER, (11, 0, 9), 0),
        (v6, PEER_V6, (1, 4, 9), 0),
        (v6, PEER_V6, (2, 0, 1280), 1280),
        (v6, PEER_V6, (3, 0, 0), 0),
    ] {
        let (to, bytes) = world.icmp(relayed, about, (kind, code, data)).unwrap();
        assert_eq!(to, client.path);
        let indication = DataIndication::decode(&bytes);
        assert_eq!((indication.peer, indication.data), (addr(about), None));
        let icmp = indication.icmp.unwrap();
        assert_eq!((icmp.kind, icmp.code, icmp.data), (kind, code.into(), told));
    }
    // The figure's layout, byte by byte: 7 bits of type, 9 bits of code.
    let (_, bytes) = world.icmp(v4, PEER, (3, 3, 0)).unwrap();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.first(AttributeType::ICMP).unwrap(), [0, 0, 6, 3, 0, 0, 0, 0]);
}

#[test]
fn icmp_comes_as_data_even_with_a_channel() {
    // 8656-12.5-01
    let mut world = World::new();
    let (mut client, relayed) = permitted(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    let (_, bytes) = world.icmp(relayed, PEER, (3, 3, 0)).unwrap();
    assert!(DataIndication::decode(&bytes).icmp.is_some());
}

#[test]
fn other_icmp_is_ignored() {
    // 8656-11.5-02, 8656-11.5-04
    let mut world = World::new();
    let (_, relayed) = permitted(&mut world);
    for (about, icmp) in [
        (PEER, (0, 0, 0)),
        (PEER, (5, 0, 0)),
        (PEER, (12, 0, 0)),
        (PEER, (1, 0, 0)),
        ("192.0.2.11:1", (3, 3, 0)),
        (PEER_V6, (3, 3, 0)),
    ] {
        assert_eq!(world.icmp(relayed, about, icmp).unwrap_err(), DropReason::IcmpIgnored);
    }
    let (now, relay) = (world.now, world.socket_at(relayed));
    let report = IcmpReport { family: IpFamily::V6, kind: 1, code: 0, data: 0 };
    let crossed = world.server.handle_icmp(now, relay, peer(PEER), report, &mut [0; REPLY_MAX]);
    assert_eq!(crossed, Err(DropReason::IcmpIgnored), "ICMPv6 about an IPv4 packet");
    world.advance_silently(secs(300));
    let late = world.icmp(relayed, PEER, (3, 3, 0)).unwrap_err();
    assert_eq!(late, DropReason::IcmpIgnored, "without a live permission");
}

#[test]
fn behind_nat_clients_and_packets_have_their_own_addresses() {
    let mut world = World::with(behind_nat());
    let mut first = Client::new(1);
    let relayed = first.allocate(&mut world);
    assert_eq!(relayed.ip(), ip(RELAY_V4), "clients are told the public address");
    let socket = world.sockets[&world.socket_at(relayed)];
    assert_eq!(socket.ip(), ip("10.0.0.5"), "sockets are bound to the local one");
    // Two clients of ours talk to each other by their public addresses; packets carry local ones.
    let mut second = Client::new(2);
    let other = second.allocate(&mut world);
    first.permit(&mut world, &[&other.to_string()]).success();
    second.permit(&mut world, &[&relayed.to_string()]).success();
    let fate = first.send(&mut world, &other.to_string(), b"x");
    let Fate::ToPeer { from, to, .. } = fate else { panic!("{fate:?}") };
    assert_eq!((from, to.ip()), (socket, ip("10.0.0.5")));
    let bytes = world.from_peer(other, &from.to_string(), b"x").to_client();
    assert_eq!(DataIndication::decode(&bytes).peer, relayed, "and are shown as public ones");
}
