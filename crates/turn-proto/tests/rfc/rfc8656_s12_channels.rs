//! RFC 8656 §12: channels.

use client::channel_message;
use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

/// A client with an allocation and channel 0x4000 to [`PEER`].
fn bound(world: &mut World) -> (Client, std::net::SocketAddr) {
    let mut client = Client::new(1);
    let relayed = client.allocate(world);
    client.bind(world, 0x4000, PEER).success();
    (client, relayed)
}

#[test]
fn numbers_are_0x4000_to_0x4fff() {
    // 8656-12-01, 8656-12.2-02
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    for number in [0, 0x3FFF, 0x5000, 0x7FFE, 0x7FFF, 0xFFFF] {
        client.bind(&mut world, number, PEER).refused(400);
    }
    client.bind(&mut world, 0x4000, PEER).success();
    client.bind(&mut world, 0x4FFF, "192.0.2.10:5001").success();
}

#[test]
fn clients_of_rfc_5766_have_more_numbers_where_they_are_served() {
    let mut world = World::with(Policy { rfc5766_clients: true, ..policy() });
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    for number in [0x3FFF, 0x8000] {
        client.bind(&mut world, number, PEER).refused(400);
    }
    client.bind(&mut world, 0x7FFF, PEER).success();
    assert_eq!(client.send_channel(&mut world, 0x7FFF, b"out").to_peer(), b"out");
    let back = world.from_peer(relayed, PEER, b"in").to_client();
    assert_eq!(back, [&[0x7F, 0xFF, 0, 2][..], b"in"].concat());
}

#[test]
fn the_first_byte_says_what_a_datagram_is() {
    // 8656-12-02, 8656-12.6-01, 8489-5-02
    let mut world = World::new();
    let (client, _) = bound(&mut world);
    for first in 0..=255u8 {
        let mut datagram = [0; 64];
        datagram[0] = first;
        let expected = match first {
            0..=3 => DropReason::MalformedStun,
            64..=79 => DropReason::ChannelNotBound,
            _ => DropReason::NotStun,
        };
        let fate = world.from_client(&client.path, &datagram);
        if first == 0x40 {
            assert!(fate.to_peer().is_empty(), "channel 0x4000 is bound");
        } else {
            assert_eq!(fate.dropped(), expected, "first byte {first}");
        }
    }
    assert_eq!(world.from_client(&client.path, &[]).dropped(), DropReason::NotStun);
}

#[test]
fn one_channel_one_peer() {
    // 8656-12-03, 8656-12.2-03, 8656-12.2-08
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.bind(&mut world, 0x4000, "192.0.2.20:1").refused(400);
    client.bind(&mut world, 0x4001, PEER).refused(400);
    client.bind(&mut world, 0x4000, "192.0.2.10:5001").refused(400);
    assert_eq!(client.send_channel(&mut world, 0x4000, b"old").to_peer(), b"old");
    let fate = client.send_channel(&mut world, 0x4001, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
    let fate = world.from_peer(relayed, "192.0.2.20:1", b"x");
    assert_eq!(fate.dropped(), DropReason::NoPermission, "an error permits nobody");
    client.bind(&mut world, 0x4001, "192.0.2.10:5001").success();
    // Another allocation has separate numbers.
    let mut other = Client::new(2);
    other.allocate(&mut world);
    other.bind(&mut world, 0x4000, "192.0.2.20:1").success();
    other.bind(&mut world, 0x4001, PEER).success();
}

#[test]
fn a_binding_lives_600_seconds_and_its_permission_300() {
    // 8656-12-04, 8656-12.6-06
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(299));
    world.from_peer(relayed, PEER, b"x").to_client();
    world.advance(secs(1));
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::NoPermission);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoPermission);
    client.send_channel(&mut world, 0x4000, b"deaf, not mute").to_peer();
    world.advance_silently(secs(300) - std::time::Duration::from_nanos(1));
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.advance_silently(std::time::Duration::from_nanos(1));
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
}

#[test]
fn after_its_end_number_and_peer_are_free_at_once() {
    // 8656-12-05
    for reclaimed in [false, true] {
        let mut world = World::new();
        let (mut client, relayed) = bound(&mut world);
        client.refresh(&mut world, Some(3600)).success();
        let pause = secs(600);
        if reclaimed {
            world.advance(pause)
        } else {
            world.advance_silently(pause)
        }
        client.bind(&mut world, 0x4000, "192.0.2.20:1").success();
        client.bind(&mut world, 0x4001, PEER).success();
        let bytes = world.from_peer(relayed, PEER, b"x").to_client();
        assert_eq!(bytes, channel_message(0x4001, b"x"));
        let bytes = world.from_peer(relayed, "192.0.2.20:1", b"x").to_client();
        assert_eq!(bytes, channel_message(0x4000, b"x"));
    }
}

#[test]
fn a_refreshed_binding_lives_on() {
    // 8656-12-04
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(500));
    client.bind(&mut world, 0x4000, PEER).success();
    world.advance(secs(250));
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.from_peer(relayed, PEER, b"x").to_client();
    world.advance(secs(350));
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
}

#[test]
fn number_and_peer_must_be_there() {
    // 8656-12.2-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let peer = AttributeType::XOR_PEER_ADDRESS;
    let number = ChannelNumber::MIN;
    client.ask(&mut world, Method::CHANNEL_BIND, |_| ()).refused(400);
    let only_number =
        client.ask(&mut world, Method::CHANNEL_BIND, |b| _ = b.channel_number(number));
    only_number.refused(400);
    let only_peer = client.ask(&mut world, Method::CHANNEL_BIND, |b| {
        b.xor_address(peer, addr(PEER));
    });
    only_peer.refused(400);
    let malformed = client.ask(&mut world, Method::CHANNEL_BIND, |b| {
        b.channel_number(number).attribute(peer, &[0, 1, 2, 3]);
    });
    malformed.refused(400);
    client.bind(&mut world, 0x4000, "192.0.2.10:0").refused(400);
}

#[test]
fn the_wrong_family_gets_443() {
    // 8656-12.2-04, 8656-12.2-08
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER_V6).refused(443);
    client.bind(&mut world, 0x4000, PEER).success();
}

#[test]
fn a_forbidden_peer_gets_403() {
    // 8656-12.2-05, 8656-12.2-08, 8656-21.4-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate_both(&mut world);
    for forbidden in ["127.0.0.1:80", "[2002:c000:20a::1]:80", "[2001:0:1::1]:80", "[::1]:80"] {
        client.bind(&mut world, 0x4000, forbidden).refused(403);
    }
    let record = world.record();
    assert_eq!((record.permissions, record.channels), (0, 0));
    client.bind(&mut world, 0x4000, PEER).success();
}

#[test]
fn channels_are_limited() {
    // 8656-12.2-06
    let mut policy = policy();
    policy.quotas.channels = 2;
    let mut world = World::with(policy);
    let (mut client, _) = bound(&mut world);
    client.bind(&mut world, 0x4001, "192.0.2.10:5001").success();
    client.bind(&mut world, 0x4002, "192.0.2.10:5002").refused(508);
    client.bind(&mut world, 0x4001, "192.0.2.10:5001").success();
    client.refresh(&mut world, Some(3600)).success();
    world.advance_silently(secs(600));
    client.bind(&mut world, 0x4002, "192.0.2.10:5002").success();
}

#[test]
fn a_binding_permits_the_address() {
    // 8656-12.2-07
    let mut world = World::new();
    let (_, relayed) = bound(&mut world);
    let bytes = world.from_peer(relayed, "192.0.2.10:9", b"x").to_client();
    assert_eq!(answer::DataIndication::decode(&bytes).peer, addr("192.0.2.10:9"));
}

#[test]
fn channel_data_goes_both_ways() {
    // 8656-12.4-01, 8656-12.5-02, 8656-12.6-05, 8656-12.7-01
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    for len in [0, 1, 2, 3, 4, 5, 1400, 60_000] {
        let payload = vec![0x5A; len];
        let fate = client.send_channel(&mut world, 0x4000, &payload);
        let Fate::ToPeer { from, to, payload: sent, .. } = fate else { panic!("{fate:?}") };
        assert_eq!((from.0, to, sent), (relayed, peer(PEER), payload.clone()));
        let bytes = world.from_peer(relayed, PEER, &payload).to_client();
        assert_eq!(bytes, channel_message(0x4000, &payload));
    }
    // Data from the peer is ChannelData even after a Send.
    client.send(&mut world, PEER, b"x").to_peer();
    let bytes = world.from_peer(relayed, PEER, b"y").to_client();
    assert_eq!(bytes, channel_message(0x4000, b"y"));
}

#[test]
fn streams_and_dtls_are_padded_and_udp_is_not() {
    // 8656-12.5-03, 8656-12.5-04
    for (transport, padded) in [
        (Transport::Udp, false),
        // Some clients read it as a stream.
        (Transport::Dtls, true),
        (Transport::Tcp, true),
        (Transport::Tls, true),
    ] {
        let mut world = World::new();
        let mut client = Client::new(1).over(transport);
        let relayed = client.allocate(&mut world);
        client.bind(&mut world, 0x4000, PEER).success();
        for len in 1..=8 {
            let bytes = world.from_peer(relayed, PEER, &vec![7; len]).to_client();
            let whole = if padded { (4 + len).next_multiple_of(4) } else { 4 + len };
            assert_eq!(bytes.len(), whole, "{transport:?} {len}");
            assert_eq!(usize::from(bytes[3]), len, "the length is without the padding");
        }
    }
}

#[test]
fn padding_from_a_client_is_understood_and_not_relayed() {
    // 8656-12.5-04
    let mut world = World::new();
    let (client, _) = bound(&mut world);
    for extra in 0..=3 {
        let mut bytes = channel_message(0x4000, b"hello");
        bytes.extend(std::iter::repeat_n(0xFF, extra));
        assert_eq!(world.from_client(&client.path, &bytes).to_peer(), b"hello");
    }
}

#[test]
fn channel_data_that_is_too_short_is_dropped() {
    // 8656-12.6-02
    let mut world = World::new();
    let (client, _) = bound(&mut world);
    let mut bytes = channel_message(0x4000, &[1; 50]);
    for len in [53, 9, 5, 4, 3, 2, 1] {
        bytes.truncate(len);
        let fate = world.from_client(&client.path, &bytes);
        assert_eq!(fate.dropped(), DropReason::MalformedChannelData, "{len} bytes");
    }
}

#[test]
fn an_unbound_channel_is_dropped() {
    // 8656-12.6-03
    let mut world = World::new();
    let (client, _) = bound(&mut world);
    for number in [0x4001, 0x4FFF] {
        let fate = client.send_channel(&mut world, number, b"x");
        assert_eq!(fate.dropped(), DropReason::ChannelNotBound);
    }
}

#[test]
fn traffic_refreshes_nothing() {
    // 8656-12.6-04, 8656-21.2.1-01
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    for second in 1..=600 {
        world.advance(secs(1));
        let sent = matches!(client.send_channel(&mut world, 0x4000, b"x"), Fate::ToPeer { .. });
        let received = matches!(world.from_peer(relayed, PEER, b"x"), Fate::ToClient { .. });
        assert_eq!((sent, received), (second < 600, second < 300), "after {second} s");
    }
}
