//! RFC 8656 §§5 and 6: rules of every method.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

/// The methods that need an allocation.
const OTHERS: [Method; 3] = [Method::REFRESH, Method::CREATE_PERMISSION, Method::CHANNEL_BIND];

#[test]
fn authentication_comes_before_everything_of_turn() {
    // 8656-5-01, 8656-5-02, 8489-6.3-01
    let mut world = World::new();
    let mut client = Client::new(1);
    for method in [Method::ALLOCATE, OTHERS[0], OTHERS[1], OTHERS[2]] {
        let request = client.bare(method, |builder| {
            builder.attribute(AttributeType(0x7E05), b"unknown");
        });
        let reply = client.exchange(&mut world, &request);
        assert_eq!(reply.code(), Some(401), "{method:?}");
        assert!(reply.has(AttributeType::REALM) && reply.has(AttributeType::NONCE));
        assert!(!reply.has(AttributeType::SOFTWARE), "strangers are not told the software");
    }
    assert_eq!(world.refusals(), [Refusal::NoCredentials; 4]);
}

#[test]
fn the_nonce_of_an_hour_ago_is_stale_and_the_new_one_works() {
    // 8656-5-03
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    world.advance(secs(500));
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(3200));
    let reply = client.refresh(&mut world, None);
    assert_eq!(reply.code(), Some(438));
    client.nonce = Some(reply.nonce());
    client.refresh(&mut world, None).success();
}

#[test]
fn another_user_gets_441_and_changes_nothing() {
    // 8656-5-04, 8656-21.3.3-01
    let mut world = World::new();
    let mut alice = Client::new(1);
    let relayed = alice.allocate(&mut world);
    alice.permit(&mut world, &[PEER]).success();
    let mut bob = Client::new(1).as_bob();
    bob.refresh(&mut world, Some(0)).refused(441);
    bob.permit(&mut world, &["192.0.2.99:1"]).refused(441);
    bob.bind(&mut world, 0x4000, PEER).refused(441);
    world.from_peer(relayed, PEER, b"still here").to_client();
    let stranger = world.from_peer(relayed, "192.0.2.99:1", b"").dropped();
    assert_eq!(stranger, DropReason::NoPermission);
    assert_eq!(
        world.refusals(),
        [Refusal::NoCredentials, Refusal::NoCredentials]
            .into_iter()
            .chain([Refusal::WrongUser; 3])
            .collect::<Vec<_>>()
    );
}

#[test]
fn without_an_allocation_requests_get_437() {
    // 8656-5-05
    let mut world = World::new();
    let mut client = Client::new(1);
    client.refresh(&mut world, None).refused(437);
    client.permit(&mut world, &[PEER]).refused(437);
    client.bind(&mut world, 0x4000, PEER).refused(437);
    client.refresh(&mut world, Some(0)).refused(437);
    let malformed = client.ask(&mut world, Method::CREATE_PERMISSION, |_| ());
    malformed.refused(437);
}

#[test]
fn without_an_allocation_data_is_ignored() {
    // 8656-5-06
    let mut world = World::new();
    let mut client = Client::new(1);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoAllocation);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::NoAllocation);
}

#[test]
fn the_five_tuple_is_both_addresses_and_the_transport() {
    // 8656-5-07
    let mut world = World::new();
    let mut first = Client::new(1);
    let mut second = Client::new(1);
    second.path.five_tuple.server = ServerAddr(addr("203.0.113.2:3478"));
    let mut third = Client::new(1).over(Transport::Tcp);
    let relayed: Vec<_> =
        [&mut first, &mut second, &mut third].map(|client| client.allocate(&mut world)).into();
    assert_eq!(world.server.allocation_count(), 3);
    assert!(relayed[0] != relayed[1] && relayed[1] != relayed[2] && relayed[0] != relayed[2]);
    first.refresh(&mut world, Some(0)).success();
    second.refresh(&mut world, None).success();
    third.refresh(&mut world, None).success();
}

#[test]
fn software_is_in_sealed_answers_and_can_be_switched_off() {
    // 8656-5-08, 8489-6.3.1.1-04, 8489-16.1.2-01
    let mut world = World::new();
    let mut client = Client::new(1);
    let success = client.try_allocate(&mut world, |_| ());
    let error = client.try_allocate(&mut world, |_| ());
    let refresh = client.refresh(&mut world, None);
    for reply in [success, error, refresh] {
        assert_eq!(reply.first(AttributeType::SOFTWARE), Some(&b"Turnpike"[..]));
    }
    world.apply(Policy { software: None, ..world.policy.clone() });
    assert!(!client.refresh(&mut world, None).has(AttributeType::SOFTWARE));
}

#[test]
fn fingerprint_is_answered_with_fingerprint() {
    // 8656-5-09: the decoder demands it of each answer
    let mut world = World::new();
    let mut client = Client::new(1);
    client.fingerprint = true;
    client.allocate(&mut world);
    client.refresh(&mut world, None).success();
    client.fingerprint = false;
    client.refresh(&mut world, None).success();
}

#[test]
fn without_the_cookie_there_is_no_turn() {
    // 8656-5-10, classic-07
    let mut world = World::new();
    let mut client = Client::new(1);
    let mut request = client.bare(Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    request[7] ^= 1;
    let fate = world.from_client(&client.path, &request);
    assert_eq!(fate.dropped(), DropReason::MalformedStun);
}

#[test]
fn all_four_combinations_of_families_are_relayed() {
    // 8656-5-11, 8656-5-12
    for (client, peer) in [
        (Client::new(1), PEER),
        (Client::new(1), PEER_V6),
        (Client::v6(1), PEER),
        (Client::v6(1), PEER_V6),
    ] {
        let mut world = World::new();
        let mut client = client;
        let (v4, v6) = client.allocate_both(&mut world);
        let relayed = if addr(peer).is_ipv4() { v4 } else { v6 };
        client.permit(&mut world, &[peer]).success();
        assert_eq!(client.send(&mut world, peer, b"there").to_peer(), b"there");
        let back = world.from_peer(relayed, peer, b"back").to_client();
        let indication = answer::DataIndication::decode(&back);
        assert_eq!((indication.peer, indication.data.unwrap()), (addr(peer), b"back".to_vec()));
        client.bind(&mut world, 0x4000, peer).success();
        assert_eq!(client.send_channel(&mut world, 0x4000, b"there").to_peer(), b"there");
        let back = world.from_peer(relayed, peer, b"back").to_client();
        assert_eq!(back, client::channel_message(0x4000, b"back"));
    }
}

#[test]
fn a_repeated_request_is_as_good_as_one() {
    // 8656-5-14, 8489-6.3.1-02
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let bytes = AttributeType::XOR_PEER_ADDRESS;
    let requests = [
        client.sealed(&mut world, Method::REFRESH, |b| {
            b.lifetime(900);
        }),
        client.sealed(&mut world, Method::CREATE_PERMISSION, |b| {
            b.xor_address(bytes, addr(PEER));
        }),
        client.sealed(&mut world, Method::CHANNEL_BIND, |b| {
            b.channel_number(ChannelNumber::MIN).xor_address(bytes, addr(PEER));
        }),
    ];
    for request in requests {
        let first = client.exchange(&mut world, &request).success();
        let again = client.exchange(&mut world, &request).success();
        assert_eq!(first.bytes, again.bytes);
    }
    let record = world.record();
    assert_eq!((record.permissions, record.channels), (1, 1));
}

#[test]
fn the_quota_of_a_user_counts_by_name() {
    // 8656-5-15, 8656-7.2-16, 8656-7.2-17, 8656-21.3.1-01
    let mut policy = policy();
    policy.quotas.allocations_per_user = 2;
    let mut world = World::with(policy);
    let mut first = Client::new(1);
    first.allocate(&mut world);
    Client::at("198.51.100.99:1").allocate(&mut world);
    let mut third = Client::new(3);
    third.try_allocate(&mut world, |_| ()).refused(486);
    Client::new(4).as_bob().allocate(&mut world);
    // A released slot is available to another client.
    first.refresh(&mut world, Some(0)).success();
    third.allocate(&mut world);
    let mut fourth = Client::new(5);
    fourth.try_allocate(&mut world, |_| ()).refused(486);
    world.advance(secs(601));
    fourth.allocate(&mut world);
}

#[test]
fn a_user_may_have_a_quota_of_their_own() {
    let mut policy = policy();
    policy.quotas.allocations_per_user = 1;
    let mut world = World::with(policy);
    world.allocations_max = Some(2);
    Client::new(1).allocate(&mut world);
    Client::new(2).allocate(&mut world);
    Client::new(3).try_allocate(&mut world, |_| ()).refused(486);
}

#[test]
fn the_total_quota_is_a_matter_of_capacity() {
    let mut policy = policy();
    policy.quotas.allocations_total = 1;
    let mut world = World::with(policy);
    Client::new(1).allocate(&mut world);
    Client::new(2).as_bob().try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::TotalQuota));
}

#[test]
fn bandwidth_is_charged_with_headers() {
    let mut policy = policy();
    policy.quotas.bytes_per_second = 100_000;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.permit(&mut world, &[PEER, PEER_V6]).success();
    // Empty datagrams are packets, too. A bucket of one second holds so many to each family.
    for (peer, headers) in [(PEER, 28), (PEER_V6, 48)] {
        let sent = (0..5000)
            .take_while(|_| matches!(client.send(&mut world, peer, b""), Fate::ToPeer { .. }));
        assert_eq!(sent.count(), 100_000 / headers, "{peer}");
        world.advance_silently(secs(1));
    }
    // Packets to the client have the client's family, whatever the peer's family is.
    for (relayed, peer) in [(v4, PEER), (v6, PEER_V6)] {
        let received = (0..5000)
            .take_while(|_| matches!(world.from_peer(relayed, peer, b""), Fate::ToClient { .. }));
        assert_eq!(received.count(), 100_000 / 28, "{peer}");
        // Reports of ICMP errors are of the same bucket.
        let unreachable = if peer == PEER { (3, 1, 0) } else { (1, 0, 0) };
        assert_eq!(world.icmp(relayed, peer, unreachable).unwrap_err(), DropReason::Bandwidth);
        world.advance_silently(secs(1));
    }
}

#[test]
fn bandwidth_is_limited_in_each_direction() {
    // 8656-5-16
    let mut policy = policy();
    policy.quotas.bytes_per_second = 100_000;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    let (mut out, mut back) = (0, 0);
    // 10 s of ten times the rate each way.
    for _ in 0..10_000 {
        world.advance_silently(std::time::Duration::from_millis(1));
        let sent = client.send_channel(&mut world, 0x4000, &[0; 1000]);
        if let Fate::ToPeer { payload, .. } = sent {
            out += payload.len();
        } else {
            assert_eq!(sent.dropped(), DropReason::Bandwidth);
        }
        let received = world.from_peer(relayed, PEER, &[0; 1000]);
        if let Fate::ToClient { bytes, .. } = received {
            back += bytes.len() - 4;
        } else {
            assert_eq!(received.dropped(), DropReason::Bandwidth);
        }
    }
    for relayed in [out, back] {
        // The rate for 10 s, and a bucket of one second, charged for packets with headers.
        let charged = relayed / 1000 * 1028;
        assert!((1_090_000..=1_101_000).contains(&charged), "{charged} bytes in 10 s");
    }
    let traffic = world.record().traffic;
    assert_eq!(traffic.to_peer_bytes as usize, out);
    assert_eq!(traffic.to_client_bytes as usize, back);
    let relayed = traffic.to_peer_packets + traffic.to_client_packets;
    assert_eq!(relayed + traffic.dropped_packets, 20_000);
}

#[test]
fn relayed_addresses_are_unique() {
    // 8656-6-01
    let mut world = World::new();
    let relayed: std::collections::BTreeSet<_> =
        (1..=1000).map(|port| Client::new(port).allocate(&mut world)).collect();
    assert_eq!(relayed.len(), 1000);
}

#[test]
fn halves_have_state_of_their_own() {
    // 8656-6-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.refresh_half(&mut world, 2, 1800).success();
    world.advance(secs(601));
    assert!(!world.is_open(v4) && world.is_open(v6));
    client.permit(&mut world, &[PEER]).refused(443);
    client.permit(&mut world, &[PEER_V6]).success();
    assert!(world.ends().is_empty(), "the allocation lives on its other half");
    world.advance(secs(1200));
    assert_eq!(world.ends(), [EndReason::Expired]);
}

#[test]
fn a_half_relays_nothing_from_its_end_on() {
    // 8656-6-02, 8656-6-05
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.refresh_half(&mut world, 2, 1800).success();
    world.advance_silently(secs(599));
    client.bind(&mut world, 0x4000, PEER).success();
    client.permit(&mut world, &[PEER_V6]).success();
    world.from_peer(v4, PEER, b"x").to_client();
    // No timer has run yet.
    world.advance_silently(secs(1));
    assert_eq!(world.from_peer(v4, PEER, b"x").dropped(), DropReason::RelayClosed);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::PeerFamily);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::PeerFamily);
    assert_eq!(world.icmp(v4, PEER, (3, 3, 0)).unwrap_err(), DropReason::IcmpIgnored);
    world.from_peer(v6, PEER_V6, b"x").to_client();
    client.permit(&mut world, &[PEER]).refused(443);
    client.refresh_half(&mut world, 1, 600).refused(443);
    client.refresh(&mut world, Some(1800)).success();
    assert!(!world.is_open(v4), "the next request reclaims it");
}

#[test]
fn data_does_not_prolong_an_allocation() {
    // 8656-6-04, 8656-6-05
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    for _ in 0..59 {
        world.advance(secs(10));
        client.send_channel(&mut world, 0x4000, b"x").to_peer();
    }
    world.advance_silently(secs(9));
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.advance_silently(secs(1));
    // Exactly at its end, although no timer has run.
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::NoAllocation);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::NoAllocation);
    assert!(matches!(world.from_peer(relayed, PEER, b"x"), Fate::Drop(_)));
    client.refresh(&mut world, None).refused(437);
    assert!(!world.is_open(relayed));
    assert_eq!(world.ends(), [EndReason::Expired]);
    let again = client.allocate(&mut world);
    assert_eq!(world.from_peer(again, PEER, b"x").dropped(), DropReason::NoPermission);
}

#[test]
fn what_has_run_out_is_reclaimed_within_a_tick_by_itself() {
    // 8656-6-05
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    world.advance(secs(600) + limits::TIMER_TICK);
    assert!(!world.is_open(relayed));
    assert_eq!(world.server.poll_timeout(), None, "nothing is left that could run out");
}
