//! Relaying through a worker on the real kernel: boundaries, header fields, families, errors, sums.

use control::{Fate, Histogram, Leg, Series};
use dataplane::limits::{RELAYS_OUT_OF_ORDER, WAITING_REPORTED};
use dataplane::{ConnectionLimits, NetOptions};
use test_support::eventually;
use turn_client::Families;
use turn_proto::DropReason;
use turn_types::{IpFamily, IpMeta, PeerAddr};

use crate::support::end::End;
use crate::support::user::{Heard, TurnUser};
use crate::support::{LOCALHOST, LOCALHOST_V6, NOWHERE, PEER, Start, World};

#[test]
fn channel_data_goes_both_ways() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());

    alice.say(channel, &[b"hello"], IpMeta::DEFAULT);
    let heard = peer.receive();
    assert_eq!((heard.from, &heard.bytes[..]), (relayed, &b"hello"[..]));

    peer.send(relayed, b"good day");
    let heard = alice.hear();
    assert_eq!((heard.channel, &heard.payload[..]), (Some(channel), &b"good day"[..]));
    assert_eq!(heard.peer, PeerAddr(peer.addr()));
    world.assert_adds_up();
}

/// Busy relays of one client, most of which wait for later iterations. The number of waiting relays
/// is so large that the kernel stops reporting some of the relays.
#[test]
fn relays_that_wait_lose_nothing_and_keep_the_order() {
    // Shares are per address.
    let limits = ConnectionLimits { total: 0, per_address: 1000 };
    let world = World::start(Start { limits, ..Start::default() });
    let mut peer = End::at(PEER);
    let mut users: Vec<_> = (0..RELAYS_OUT_OF_ORDER as usize + WAITING_REPORTED + 16)
        .map(|_| {
            let mut user = TurnUser::allocated(LOCALHOST, world.server);
            user.bind_channel(peer.addr());
            user
        })
        .collect();
    let hold = world.hold();
    let datagrams = 40_u8;
    for user in &users {
        let relayed = user.relayed(IpFamily::V4);
        (0..datagrams).for_each(|number| peer.send(relayed, &[number]));
    }
    drop(hold);
    for user in &mut users {
        for number in 0..datagrams {
            assert_eq!(user.hear().payload, [number]);
        }
    }
    // The kernel reports input of these relays again.
    for user in &mut users {
        peer.send(user.relayed(IpFamily::V4), b"later");
        assert_eq!(user.hear().payload, b"later");
    }
    world.assert_adds_up();
}

#[test]
fn send_and_data_indications_go_both_ways_with_any_padding() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    alice.permit(PEER);
    for len in 0..=5 {
        let payload = vec![0xA5; len];
        alice.indicate(peer.addr(), &payload, IpMeta::DEFAULT);
        assert_eq!(peer.receive().bytes, payload);
        peer.send(relayed, &payload);
        let heard = alice.hear();
        assert_eq!((heard.channel, heard.payload), (None, payload));
    }
    world.assert_adds_up();
}

#[test]
fn datagrams_longer_than_any_link_takes_go_both_ways() {
    for (listen, peer_ip) in [(LOCALHOST, PEER), (LOCALHOST_V6, LOCALHOST_V6)] {
        let world = World::start(Start { listen, ..Start::default() });
        let mut peer = End::at(peer_ip);
        let families = if listen == LOCALHOST { Families::V4 } else { Families::V6 };
        let mut alice = TurnUser::allocated_with(families, listen, world.server);
        let relayed = alice.relayed(IpFamily::of(peer_ip));
        alice.permit(peer_ip);
        // The last is the maximum length over IPv4 with an indication or a ChannelData header.
        for len in [1500, 9000, 65_456] {
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            alice.indicate(peer.addr(), &data, IpMeta::DEFAULT);
            assert_eq!(peer.receive().bytes, data);
            peer.send(relayed, &data);
            assert_eq!(alice.hear().payload, data);
        }
        let channel = alice.bind_channel(peer.addr());
        for len in [1500, 9000, 65_507 - 4] {
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            alice.say(channel, &[&data], IpMeta::DEFAULT);
            assert_eq!(peer.receive().bytes, data);
            peer.send(relayed, &data);
            assert_eq!(alice.hear().payload, data);
        }
        world.assert_adds_up();
    }
}

#[test]
fn ipv6_clients_reach_ipv6_peers() {
    let world = World::start(Start { listen: LOCALHOST_V6, ..Start::default() });
    let mut peer = End::at(LOCALHOST_V6);
    let mut alice = TurnUser::allocated_with(Families::V6, LOCALHOST_V6, world.server);
    let relayed = alice.relayed(IpFamily::V6);
    let meta = IpMeta { ttl: 20, tos: 0x88, dont_fragment: false };

    alice.permit(peer.addr().ip());
    alice.indicate(peer.addr(), b"hello", meta);
    let heard = peer.receive();
    assert_eq!((heard.from, &heard.bytes[..]), (relayed, &b"hello"[..]));
    assert_eq!((heard.meta.ttl, heard.meta.tos), (19, 0x88));

    let channel = alice.bind_channel(peer.addr());
    peer.send_burst(relayed, &[b"good day"], meta);
    let heard = alice.hear();
    assert_eq!((heard.channel, &heard.payload[..]), (Some(channel), &b"good day"[..]));
    assert_eq!((heard.meta.ttl, heard.meta.tos), (19, 0x88));
}

#[test]
fn an_ipv4_client_has_a_relay_of_each_family() {
    let world = World::new();
    let mut alice = TurnUser::allocated_with(Families::Both, LOCALHOST, world.server);
    for (family, ip) in [(IpFamily::V4, PEER), (IpFamily::V6, LOCALHOST_V6)] {
        let mut peer = End::at(ip);
        let relayed = alice.relayed(family);
        alice.permit(ip);
        alice.indicate(peer.addr(), b"hello", IpMeta::DEFAULT);
        let heard = peer.receive();
        assert_eq!((heard.from, &heard.bytes[..]), (relayed, &b"hello"[..]));
        peer.send(relayed, b"good day");
        assert_eq!(alice.hear().payload, b"good day");
    }
}

#[test]
fn ttl_is_counted_down_and_traffic_class_carried_on_both_legs() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    let meta = |ttl, tos| IpMeta { ttl, tos, dont_fragment: false };
    // Expedited Forwarding with ECT(0), best effort with congestion experienced, and default
    // values.
    for (ttl, tos) in [(10, 0xBA), (2, 0x03), (255, 0)] {
        alice.say(channel, &[b"x"], meta(ttl, tos));
        assert_eq!(peer.receive().meta, meta(ttl - 1, tos));
        peer.send_burst(relayed, &[b"y"], meta(ttl, tos));
        assert_eq!(alice.hear().meta, meta(ttl - 1, tos));
    }
    alice.say(channel, &[b"last breath"], meta(1, 0));
    assert_eq!(world.count(Series::Drop(DropReason::TtlExpired)), 1);
    assert!(peer.is_quiet());
    world.assert_adds_up();
}

/// Returns bursts with equal sizes, with unequal sizes, and with an empty datagram.
fn bursts() -> [Vec<Vec<u8>>; 3] {
    let sized = |sizes: &[usize]| -> Vec<Vec<u8>> {
        (0..).zip(sizes).map(|(n, &size)| vec![n; size]).collect()
    };
    [sized(&[200; 12]), sized(&[100, 100, 100, 40, 100, 7]), sized(&[50, 0, 50, 50])]
}

fn as_slices(burst: &[Vec<u8>]) -> Vec<&[u8]> {
    burst.iter().map(|bytes| &bytes[..]).collect()
}

fn relays_bursts(net: NetOptions) -> World {
    let world = World::start(Start { net, ..Start::default() });
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    for burst in bursts() {
        alice.say(channel, &as_slices(&burst), IpMeta::DEFAULT);
        let heard: Vec<_> = peer.receive_many(burst.len()).into_iter().map(|d| d.bytes).collect();
        assert_eq!(heard, burst);

        peer.send_burst(relayed, &as_slices(&burst), IpMeta::DEFAULT);
        let heard: Vec<Heard> = burst.iter().map(|_| alice.hear()).collect();
        assert!(heard.iter().all(|heard| heard.channel == Some(channel)));
        let heard: Vec<_> = heard.into_iter().map(|heard| heard.payload).collect();
        assert_eq!(heard, burst);
    }
    assert!(peer.is_quiet() && alice.end.is_quiet());
    world.assert_adds_up();
    world
}

#[test]
fn bursts_keep_their_boundaries_and_cross_in_one_piece() {
    let world = relays_bursts(NetOptions::default());
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    let [burst, ..] = bursts();
    // Twelve datagrams in one message belong to the fifth bucket. Sockets receive some bursts
    // before they coalesce.
    let crossings = |histogram| world.count(Series::Bucket(histogram, 4));
    let crossed = || (crossings(Histogram::ReceivedSegments), crossings(Histogram::SentSegments));
    let before = crossed();
    eventually("bursts come as one", || {
        alice.say(channel, &as_slices(&burst), IpMeta::DEFAULT);
        assert_eq!(peer.receive_many(burst.len()).len(), burst.len());
        crossed().0 > before.0 && crossed().1 > before.1
    });
    let before = crossed();
    eventually("bursts come as one", || {
        peer.send_burst(relayed, &as_slices(&burst), IpMeta::DEFAULT);
        burst.iter().for_each(|bytes| assert_eq!(alice.hear().payload, *bytes));
        crossed().0 > before.0 && crossed().1 > before.1
    });
}

#[test]
fn bursts_keep_their_boundaries_without_help_of_the_kernel() {
    let world = relays_bursts(NetOptions { gro: false, gso: false, ..NetOptions::default() });
    for bucket in 1..Histogram::SentSegments.buckets() {
        assert_eq!(world.count(Series::Bucket(Histogram::ReceivedSegments, bucket)), 0);
        assert_eq!(world.count(Series::Bucket(Histogram::SentSegments, bucket)), 0);
    }
}

#[test]
fn segments_of_one_burst_may_belong_to_different_channels() {
    let world = World::new();
    let mut peers = [End::at(PEER), End::at(PEER)];
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let channels = [0, 1].map(|n: usize| alice.bind_channel(peers[n].addr()));
    let framed: Vec<Vec<u8>> = (0..6)
        .map(|n| {
            let mut out = vec![0; 104];
            let channel = channels[n % 2];
            alice.client.write_channel_data(&mut out, channel, &[n as u8; 100]).unwrap();
            out
        })
        .collect();
    // The socket receives some bursts before it coalesces.
    eventually("bursts come as one", || {
        alice.end.send_burst(world.server, &as_slices(&framed), IpMeta::DEFAULT);
        for (n, peer) in peers.iter_mut().enumerate() {
            let heard: Vec<u8> = peer.receive_many(3).iter().map(|d| d.bytes[99]).collect();
            assert_eq!(heard, [n as u8, n as u8 + 2, n as u8 + 4]);
        }
        world.count(Series::Bucket(Histogram::ReceivedSegments, 3)) > 0
    });
}

#[test]
fn two_clients_reach_each_other_through_their_relays_and_no_other_port_of_ours() {
    let world = World::new();
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let mut bob = TurnUser::allocated(LOCALHOST, world.server);
    let [to_alice, to_bob] = [&alice, &bob].map(|user| user.relayed(IpFamily::V4));
    alice.permit(to_bob.ip());
    bob.permit(to_alice.ip());

    alice.indicate(to_bob, b"hello", IpMeta::DEFAULT);
    let heard = bob.hear();
    assert_eq!((heard.peer.0, &heard.payload[..]), (to_alice, &b"hello"[..]));
    bob.indicate(to_alice, b"good day", IpMeta::DEFAULT);
    assert_eq!(alice.hear().payload, b"good day");

    alice.indicate((to_bob.ip(), 22).into(), b"who is there?", IpMeta::DEFAULT);
    assert_eq!(world.count(Series::Drop(DropReason::OwnAddress)), 1);
    world.assert_adds_up();
}

#[test]
fn the_largest_datagrams_pass() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    // The maximum UDP payload without the ChannelData header of the other leg.
    let payload: Vec<u8> = (0..65_503_u32).map(|n| n as u8).collect();
    alice.say(channel, &[&payload], IpMeta::DEFAULT);
    assert!(peer.receive().bytes == payload);
    peer.send(relayed, &payload);
    assert!(alice.hear().payload == payload);
    // One byte more leaves no space for the header.
    peer.send(relayed, &vec![0; 65_504]);
    assert_eq!(world.count(Series::Drop(DropReason::TooLong)), 1);
    world.assert_adds_up();
}

#[test]
fn a_closed_port_of_a_peer_is_reported_to_the_client() {
    let world = World::new();
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    alice.permit(PEER);
    let gone = End::at(PEER).addr();
    alice.indicate(gone, b"anybody?", IpMeta::DEFAULT);
    let (peer, icmp) = alice.hear_icmp();
    // Destination unreachable, port unreachable (RFC 792). The port is not reported (RFC 8656
    // §11.5).
    assert_eq!((peer.ip(), icmp.kind, icmp.code), (PEER, 3, 3));
    assert_eq!(world.count(Series::Fate(Fate::IcmpReported)), 1);
    assert_eq!(world.count(Series::IcmpErrors), 1);
    world.assert_adds_up();

    // The error has no effect on other packets.
    let mut peer = End::at(PEER);
    alice.indicate(peer.addr(), b"hello", IpMeta::DEFAULT);
    assert_eq!(peer.receive().bytes, b"hello");
}

#[test]
fn a_closed_port_of_an_ipv6_peer_is_reported_to_an_ipv4_client() {
    let world = World::new();
    let mut alice = TurnUser::allocated_with(Families::V6, LOCALHOST, world.server);
    alice.permit(LOCALHOST_V6);
    let gone = End::at(LOCALHOST_V6).addr();
    alice.indicate(gone, b"anybody?", IpMeta::DEFAULT);
    let (peer, icmp) = alice.hear_icmp();
    // Destination unreachable, port unreachable (RFC 4443 §3.1).
    assert_eq!((peer.ip(), icmp.kind, icmp.code), (LOCALHOST_V6, 1, 4));
    world.assert_adds_up();
}

#[test]
fn what_the_kernel_refuses_to_send_is_counted_as_that_and_nothing_else() {
    let world = World::new();
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    alice.permit(NOWHERE);
    // Linux does not send packets with a loopback source address to other hosts.
    alice.indicate((NOWHERE, 9).into(), b"hello", IpMeta::DEFAULT);
    assert_eq!(world.count(Series::Drop(DropReason::SendRefused)), 1);
    assert_eq!(world.count(Series::Fate(Fate::ToPeer)), 0);
    world.assert_adds_up();
}

#[test]
fn what_is_dropped_is_counted_by_reason() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());

    let mut stranger = End::at(LOCALHOST);
    stranger.send(world.server, b"\x40\x00\x00\x01x"); // ChannelData without an allocation
    stranger.send(world.server, b"\xFFnonsense");
    stranger.send(world.server, b"");
    End::at(LOCALHOST).send(relayed, b"a peer without permission");
    alice.say(channel, &[b"and one that passes"], IpMeta::DEFAULT);
    peer.receive();

    let drops: Vec<_> = world.totals().drops().filter(|(_, n)| *n > 0).collect();
    assert_eq!(drops, [("not_stun", 2), ("no_allocation", 1), ("no_permission", 1)]);
    assert!(stranger.is_quiet());
    world.assert_adds_up();
}

#[test]
fn payload_is_counted_by_leg() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    let before = world.totals();
    alice.say(channel, &[&[1; 100], &[2; 100], &[3; 50]], IpMeta::DEFAULT);
    peer.receive_many(3);
    peer.send(relayed, &[4; 70]);
    alice.hear();

    let after = world.totals();
    let more = [Leg::FromClients, Leg::ToPeers, Leg::FromPeers, Leg::ToClients].map(|leg| {
        let (before, after) = (before.volume(leg), after.volume(leg));
        (after.packets - before.packets, after.bytes - before.bytes)
    });
    assert_eq!(more, [(3, 262), (3, 250), (1, 70), (1, 74)]);

    let record = &world.all_sessions()[0];
    assert_eq!((record.traffic.to_peer_packets, record.traffic.to_peer_bytes), (3, 250));
    assert_eq!((record.traffic.to_client_packets, record.traffic.to_client_bytes), (1, 70));
}

#[test]
fn a_wildcard_listener_answers_from_the_address_it_was_asked_at() {
    let world = World::start(Start { listen: [0, 0, 0, 0].into(), ..Start::default() });
    for host in [1, 3, 77] {
        let server = ([127, 0, 0, host], world.server.port()).into();
        let mut peer = End::at(PEER);
        // The helper asserts that answers arrive from `server`.
        let mut alice = TurnUser::allocated(LOCALHOST, server);
        let relayed = alice.relayed(IpFamily::V4);
        let channel = alice.bind_channel(peer.addr());
        alice.say(channel, &[b"hello"], IpMeta::DEFAULT);
        assert_eq!(peer.receive().bytes, b"hello");
        peer.send(relayed, b"good day");
        assert_eq!(alice.end.receive().from, server, "and so does relayed data");
    }
    let mut servers: Vec<_> =
        world.all_sessions().iter().map(|session| session.five_tuple.server.ip()).collect();
    servers.dedup();
    assert_eq!(servers.len(), 3, "each is an address of its own to the server");
}
