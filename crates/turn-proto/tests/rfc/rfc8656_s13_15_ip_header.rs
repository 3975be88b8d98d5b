//! RFC 8656 §§13 to 16: TTL, traffic class and DF.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

const EF: u8 = 46 << 2;
const CE: u8 = 3;

fn meta(ttl: u8, tos: u8) -> IpMeta {
    IpMeta { ttl, tos, dont_fragment: false }
}

/// A Send indication to a peer, with DONT-FRAGMENT or without.
fn send(client: &mut Client, to: &str, dont_fragment: bool) -> Vec<u8> {
    client.indication(Method::SEND, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(to)).data(b"x");
        if dont_fragment {
            builder.dont_fragment();
        }
    })
}

#[test]
fn ttl_goes_down_and_the_traffic_class_is_copied_in_every_combination() {
    // 8656-13-01, 8656-13.1-01, 8656-13.2-01, 8656-13.3-01, 8656-14-01, 8656-14-02
    for (mut client, to) in [
        (Client::new(1), PEER),
        (Client::new(2), PEER_V6),
        (Client::v6(3), PEER),
        (Client::v6(4), PEER_V6),
    ] {
        let mut world = World::new();
        let (v4, v6) = client.allocate_both(&mut world);
        let relayed = if addr(to).is_ipv4() { v4 } else { v6 };
        client.bind(&mut world, 0x4000, to).success();
        let channel = client::channel_message(0x4000, b"x");
        let indication = send(&mut client, to, false);
        for (given, expected) in [
            (meta(64, EF | 1), meta(63, EF | 1)),
            (meta(2, CE), meta(1, CE)),
            (meta(255, 0), meta(254, 0)),
            (meta(0, 0), meta(0, 0)),
        ] {
            for bytes in [&channel, &indication] {
                let fate = world.from_client_with(&client.path, given, bytes);
                assert_eq!(fate.meta(), expected);
            }
            let fate = world.from_peer_with(relayed, to, given, b"x");
            assert_eq!(fate.meta(), expected);
        }
    }
}

#[test]
fn a_ttl_that_reaches_zero_ends_the_packet() {
    // 8656-21.1.7-01
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    let last = meta(1, 0);
    for bytes in [client::channel_message(0x4000, b"x"), send(&mut client, PEER, false)] {
        let fate = world.from_client_with(&client.path, last, &bytes);
        assert_eq!(fate.dropped(), DropReason::TtlExpired);
    }
    let fate = world.from_peer_with(relayed, PEER, last, b"x");
    assert_eq!(fate.dropped(), DropReason::TtlExpired);
}

#[test]
fn df_is_set_from_ipv4_to_ipv4_when_asked_or_there() {
    // 8656-14-03, 8656-14-04, 8656-11.2-03
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    let (asked, plain) = (send(&mut client, PEER, true), send(&mut client, PEER, false));
    let channel = client::channel_message(0x4000, b"x");
    let df = IpMeta { dont_fragment: true, ..meta(64, 0) };
    for (given, bytes, expected) in [
        (meta(64, 0), &asked, true),
        (meta(64, 0), &plain, false),
        (meta(64, 0), &channel, false),
        (df, &plain, true),
        (df, &channel, true),
    ] {
        let fate = world.from_client_with(&client.path, given, bytes);
        assert_eq!(fate.meta().dont_fragment, expected);
    }
    assert!(world.from_peer_with(relayed, PEER, df, b"x").meta().dont_fragment);
}

#[test]
fn dont_fragment_is_ignored_where_ipv6_is_on_either_side() {
    // 8656-13-03
    for (mut client, to) in
        [(Client::new(1), PEER_V6), (Client::v6(2), PEER), (Client::v6(3), PEER_V6)]
    {
        let mut world = World::new();
        client.allocate_both(&mut world);
        client.permit(&mut world, &[to]).success();
        let bytes = send(&mut client, to, true);
        let fate = world.from_client(&client.path, &bytes);
        assert!(!fate.meta().dont_fragment, "{to}");
        assert_eq!(fate.to_peer(), b"x", "and the datagram is not dropped");
    }
}

#[test]
fn a_stream_has_neither_ttl_nor_ecn() {
    // 8656-15-01, 8656-16-01
    for (mut client, to) in
        [(Client::new(1).over(Transport::Tcp), PEER), (Client::v6(2).over(Transport::Tls), PEER_V6)]
    {
        let mut world = World::new();
        let (v4, v6) = client.allocate_both(&mut world);
        let relayed = if addr(to).is_ipv4() { v4 } else { v6 };
        client.permit(&mut world, &[to]).success();
        for asked in [false, true] {
            let bytes = send(&mut client, to, asked);
            let fate = world.from_client_with(&client.path, meta(1, EF | CE), &bytes);
            let expected = IpMeta { ttl: 0, tos: EF, dont_fragment: asked };
            assert_eq!(fate.meta(), expected, "DF counts for both families");
        }
        let fate = world.from_peer_with(relayed, to, meta(1, EF | CE), b"x");
        assert_eq!(fate.meta(), IpMeta::DEFAULT);
    }
}
