//! Known flaws of such relays, with a test for each flaw that could occur here. A number, where
//! present, is a reference for details.

use std::collections::BTreeSet;
use std::iter::repeat_with;

use stun_wire::{AttributeType, Cut, Method};
use turn_proto::{DropReason, EndReason, PeerRules, Policy, ServerConfig};
use turn_types::Prefix;

use crate::support::forge::Forge;
use crate::support::*;

/// The ways to write an address that reaches the relay's own host.
const LOOPBACKS: [&str; 13] = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.0.0.1",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::1",
    "2001:db8::5efe:127.0.0.1",
];

/// Spellings of an address in an internal network.
const INTERNALS: [&str; 14] = [
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "::10.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::169.254.169.254",
    "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    "2001:db8::200:5efe:10.0.0.1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
];

fn at_port(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Asserts that a peer is unreachable in every way.
#[track_caller]
fn out_of_reach(world: &mut World, client: &mut Client, ip: &str) {
    let peer = at_port(ip, 80);
    client.permit(world, &[&peer]).refused(403);
    client.permit(world, &[PEER, PEER_V6, &peer]).refused(403);
    client.bind(world, 0x4000, &peer).refused(403);
    assert_eq!(client.send(world, &peer, b"GET /").dropped(), DropReason::NoPermission, "{ip}");
    let fate = client.send_channel(world, 0x4000, b"GET /");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound, "{ip}");
}

/// CVE-2020-26262, CVE-2026-27624: loopback reached by another spelling. 8656-policy-01.
#[test]
fn loopback_is_out_of_reach_in_every_spelling() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate_both(&mut world);
    for ip in LOOPBACKS {
        out_of_reach(&mut world, &mut client, ip);
    }
    client.permit(&mut world, &[PEER, PEER_V6]).success();
}

/// CVE-2026-73212: IPv4-compatible, 6to4 and NAT64 forms of internal addresses. 8656-policy-01,
/// 8656-21.4-01.
#[test]
fn internal_networks_are_out_of_reach_in_every_spelling() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate_both(&mut world);
    for ip in
        INTERNALS.into_iter().chain(["224.0.0.251", "255.255.255.255", "ff02::fb", "240.0.0.1"])
    {
        out_of_reach(&mut world, &mut client, ip);
    }
    client.permit(&mut world, &[PEER, PEER_V6]).success();
}

/// Wide allow rules do not allow other spellings of a denied address.
#[test]
fn wide_allow_rules_do_not_open_embedded_addresses() {
    let prefixes = |texts: &[&str]| -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let allow = prefixes(&["::/0", "192.0.2.0/24", "64:ff9b::/96", "2002::/16"]);
    let own = [ip(RELAY_V4), ip(RELAY_V6)];
    let peer_rules = PeerRules::new(&allow, &prefixes(&["8.8.8.0/24"]), &own);
    let mut world = World::with(Policy { peer_rules, ..policy() });
    let mut client = Client::new(1000);
    client.allocate_both(&mut world);
    let ordinary = |ip: &&str| !["fd00:ec2::254", "fe80::1", "fec0::1"].contains(ip);
    for ip in LOOPBACKS.into_iter().chain(INTERNALS.into_iter().filter(ordinary)) {
        out_of_reach(&mut world, &mut client, ip);
    }
    for ip in ["::8.8.8.8", "64:ff9b::8.8.8.8", "2001:db8::5efe:8.8.8.8", "2002:808:808::1"] {
        out_of_reach(&mut world, &mut client, ip);
    }
    client.permit(&mut world, &["[64:ff9b::192.0.2.1]:80"]).success();
}

/// CVE-2026-73213: a range of IPv6 addresses compared part by part. An address with later parts
/// outside the range's ends is inside all the same.
#[test]
fn ipv6_ranges_are_compared_as_numbers() {
    let mut world = World::with(Policy { peer_rules: rules(&["2001:db8:10::/44"]), ..policy() });
    let mut client = Client::new(1000);
    client.allocate_both(&mut world);
    for inside in [
        "2001:db8:10::",
        "2001:db8:11:ffff::1",
        "2001:db8:1f:0:ffff::",
        "2001:db8:1f:ffff:ffff:ffff:ffff:ffff",
    ] {
        out_of_reach(&mut world, &mut client, inside);
    }
    for outside in ["2001:db8:f:ffff:ffff:ffff:ffff:ffff", "2001:db8:20::"] {
        client.permit(&mut world, &[&at_port(outside, 80)]).success();
    }
}

/// The relay's own services at its own address: only live allocations are peers there, and only
/// while they live.
#[test]
fn the_servers_own_address_is_a_peer_only_where_an_allocation_lives() {
    let mut world = World::new();
    let (mut client, mut other) = (Client::new(1000), Client::new(1001));
    let relayed = client.allocate(&mut world);
    let hairpin = other.allocate(&mut world);
    client.bind(&mut world, 0x4000, &format!("{RELAY_V4}:3478")).refused(403);
    client.permit(&mut world, &[&format!("{RELAY_V4}:0")]).success();
    let fate = client.send(&mut world, &format!("{RELAY_V4}:3478"), b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress);
    let fate = world.from_peer(relayed, &format!("{RELAY_V4}:3478"), b"x");
    assert!(matches!(fate, Fate::Drop(DropReason::OwnAddress)));

    client.bind(&mut world, 0x4001, &hairpin.to_string()).success();
    assert_eq!(client.send_channel(&mut world, 0x4001, b"x").to_peer(), b"x");
    other.refresh(&mut world, Some(0)).success();
    let fate = client.send_channel(&mut world, 0x4001, b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress, "the port is somebody else's now");
}

/// CVE-2020-4067, CVE-2026-104074: bytes of earlier packets in padding and reason phrases. Two
/// twins get equal requests, and write responses over noise and over zeros.
#[test]
fn no_byte_of_an_answer_is_left_over_from_before() {
    let mut answers = [0x00, 0xFF].map(|noise| {
        let mut world = World::new();
        let mut client = Client::new(1000);
        client.fingerprint = true;
        let mut answers = Vec::new();
        let mut take = |world: &mut World, reply: Reply| {
            answers.push(reply.bytes);
            world.reply.fill(noise);
        };
        world.reply.fill(noise);
        let bare = client.bare(Method::ALLOCATE, |_| ());
        let reply = client.exchange(&mut world, &bare);
        take(&mut world, reply);
        for name in ["n", "nobody", "somebody"] {
            let request = Forge::new(&mut client, &mut world, Method::ALLOCATE)
                .with(AttributeType::USERNAME, name)
                .sealed_both(&client.key());
            client.fingerprint = false;
            let reply = client.exchange(&mut world, &request);
            client.fingerprint = true;
            take(&mut world, reply);
        }
        for method in [Method::REFRESH, Method::CREATE_PERMISSION, Method::CHANNEL_BIND] {
            let reply = client.ask(&mut world, method, |b| {
                b.attribute(AttributeType(0x7001), &[]);
            });
            take(&mut world, reply);
        }
        let reply = client.try_allocate(&mut world, |b| {
            b.even_port(true);
        });
        take(&mut world, reply.success());
        for (peer, code) in [(PEER, None), ("127.0.0.1:1", Some(403)), (PEER_V6, Some(443))] {
            let reply = client.permit(&mut world, &[peer]);
            assert_eq!(reply.code(), code);
            take(&mut world, reply);
        }
        let relayed = world.server.allocations().next().unwrap().relayed[0].unwrap().0;
        for len in 0..6 {
            // The header buffer starts full of 0xEE in both, so the header is decoded instead.
            let bytes = world.from_peer(relayed, PEER, &vec![9; len]).to_client();
            let data = answer::DataIndication::decode(&bytes);
            assert_eq!((data.peer, data.data), (addr(PEER), Some(vec![9; len])));
        }
        world.reply.fill(noise);
        answers.push(world.icmp(relayed, PEER, (3, 3, 0)).unwrap().1);
        answers
    });
    // The nonce depends only on time, and an equal seed leads to equal choices.
    let [clean, noisy] = &mut answers;
    assert_eq!(clean.len(), 12);
    assert_eq!(clean, noisy);
}

/// CVE-2025-69217: the state of the generator of ports and nonces could be computed from its
/// output. Here all random values derive only from the seed, and ports show no order.
#[test]
fn what_is_random_follows_from_the_secret_seed_alone() {
    let ports = |seed: [u8; 32]| -> Vec<u16> {
        let mut world = World::new();
        world.server = turn_proto::Server::new(ServerConfig {
            worker: turn_types::WorkerId(0),
            policy: world.policy.clone().into(),
            registry: world.registry.clone(),
            seed,
            routes: false,
        });
        (1000..1040).map(|port| Client::new(port).allocate(&mut world).port()).collect()
    };
    let one = ports([1; 32]);
    assert_eq!(one, ports([1; 32]));
    let mut nearby = [1; 32];
    nearby[31] ^= 1;
    let other = ports(nearby);
    assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() <= 1);
    // No step between consecutive ports occurs twice, unlike in a sequence.
    let steps: BTreeSet<u16> = one.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.len() >= 38, "{one:?}");
    let high = one.iter().filter(|port| **port >= 57_344).count();
    assert!((8..=32).contains(&high), "all of the range is used: {one:?}");
}

/// CVE-2026-53450: an operator's rule that an IPv4-mapped address of the same peer passed, on
/// either side of the comparison.
#[test]
fn a_rule_holds_for_the_mapped_form_of_an_address() {
    for denied in ["198.51.100.0/24", "::ffff:198.51.100.0/120"] {
        let mut world = World::with(Policy { peer_rules: rules(&[denied]), ..policy() });
        let mut client = Client::new(1000);
        client.allocate_both(&mut world);
        for inside in ["198.51.100.9", "::ffff:198.51.100.9", "64:ff9b::198.51.100.9"] {
            out_of_reach(&mut world, &mut client, inside);
        }
        client.permit(&mut world, &["198.51.101.9:80"]).success();
    }
}

/// CVE-2026-68552: a STUN length was truncated to 16 bits with the header added, and the
/// remaining bytes of a connection were read as further messages.
#[test]
fn the_longest_message_of_a_connection_is_one_message() {
    let world = World::new();
    for length in [0xFFE8_u16, 0xFFEC, 0xFFF0, 0xFFFC] {
        let mut stream = vec![0; 20 + usize::from(length) + 4];
        stream[..2].copy_from_slice(&[0x00, 0x03]);
        stream[2..4].copy_from_slice(&length.to_be_bytes());
        stream[4..8].copy_from_slice(&[0x21, 0x12, 0xA4, 0x42]);
        let whole = 20 + usize::from(length);
        for received in [20, 24, whole - 1] {
            let cut = world.server.next_message(&stream[..received]);
            assert_eq!(cut, Cut::NeedMore { at_least: whole }, "{received} of {whole}");
        }
        let message = Cut::Message { len: whole, padded_len: whole };
        assert_eq!(world.server.next_message(&stream), message);
    }
}

/// CVE-2026-40613: attributes were converted to numbers without a check of length
/// and alignment.
#[test]
fn attributes_of_any_length_are_harmless() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    for kind in (0..=0x2F).chain(0x8000..=0x8040).map(AttributeType) {
        for len in 0..12 {
            for method in [Method::ALLOCATE, Method::REFRESH, Method::CHANNEL_BIND] {
                let bytes = [0xFF; 12];
                let request = client.sealed(&mut world, method, |builder| {
                    builder.attribute(kind, &bytes[..len]);
                });
                world.from_client(&client.path, &request);
            }
        }
    }
    client.refresh(&mut world, None).success();
}

/// CVE-2026-43994: an access token that overflowed a buffer before authentication. Tokens have no
/// meaning here: the attribute is unknown, regardless of the content.
#[test]
fn access_tokens_of_any_length_are_harmless() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    for len in [0, 1, 2, 3, 16, 255, 1024, 4000] {
        for byte in [0x00, 0xFF] {
            let token = vec![byte; len];
            let bare = Forge::empty(&mut client, Method::ALLOCATE)
                .with(AttributeType::ACCESS_TOKEN, token.clone())
                .bare();
            assert_eq!(client.exchange(&mut world, &bare).code(), Some(401));
        }
    }
    let reply = client.try_allocate(&mut world, |b| {
        b.attribute(AttributeType::ACCESS_TOKEN, &[0xFF; 255]);
    });
    assert_eq!(reply.refused(420).unknown(), [AttributeType::ACCESS_TOKEN]);
}

/// CVE-2026-73215: EVEN-PORT without a reservation leaked the odd port, until no port was left.
/// World::check counts ports and their holders after every step.
#[test]
fn even_ports_never_cost_more_ports_than_they_hold() {
    let mut world = World::with(with_ports(50_000, 50_007));
    let ports = world.policy.relay[0].ports.clone();
    for round in 0..100 {
        for reserve in [false, true] {
            let mut client = Client::new(1000);
            let reply = client.try_allocate(&mut world, |b| {
                b.even_port(reserve);
            });
            let reply = reply.success();
            assert_eq!(reply.relayed()[0].port() % 2, 0);
            assert_eq!(ports.used(), 1 + u32::from(reserve), "round {round}");
            client.refresh(&mut world, Some(0)).success();
            world.advance(secs(31)); // the reservation ends
            assert_eq!(ports.used(), 0, "round {round}");
        }
    }
    let even = |world: &mut World, port| {
        Client::new(port).try_allocate(world, |b| {
            b.even_port(false);
        })
    };
    for port in 0..4 {
        even(&mut world, 1000 + port).success();
    }
    even(&mut world, 2000).refused(508);
    // The odd ports were free all the time.
    for port in 0..4 {
        Client::new(3000 + port).try_allocate(&mut world, |_| ()).success();
    }
    assert_eq!(ports.used(), 8);
}

/// CVE-2026-73216: a quota was released while the allocation lived on. The slot of an allocation is
/// in use until the end, for any reason of the end, and free afterwards. World::check compares both
/// after every step.
#[test]
fn a_place_in_the_quota_is_held_as_long_as_the_allocation() {
    let mut limited = policy();
    limited.quotas.allocations_per_user = 2;
    let mut world = World::with(limited);
    let ends: [fn(&mut World, &mut Client); 5] = [
        |world, client| drop(client.refresh(world, Some(0)).success()),
        |world, _| world.advance(secs(602)),
        |world, _| {
            let id = world.server.allocations().next().unwrap().id;
            assert!(world.server.end_allocation(world.now, id, EndReason::EndedByOperator));
            assert!(world.carry_out().is_empty());
        },
        |world, _| {
            world.server.end_all(world.now, EndReason::Shutdown);
            assert!(world.carry_out().is_empty());
        },
        |world, _| {
            let policy = world.policy.clone();
            world.apply(Policy { relay: Vec::new(), ..policy.clone() });
            world.apply(policy);
        },
    ];
    for (index, end) in ends.into_iter().enumerate() {
        let mut port = 1000;
        let mut clients: Vec<Client> = repeat_with(|| {
            port += 1;
            Client::new(port)
        })
        .take(2)
        .collect();
        for client in &mut clients {
            client.allocate(&mut world);
        }
        let mut third = Client::new(2000);
        third.try_allocate(&mut world, |_| ()).refused(486);
        // Neither a Refresh nor a refusal releases anything.
        clients[0].refresh(&mut world, None).success();
        clients[0].permit(&mut world, &["127.0.0.1:1"]).refused(403);
        let mut thief = Client::new(1001).as_bob();
        thief.refresh(&mut world, Some(0)).refused(441);
        third.try_allocate(&mut world, |_| ()).refused(486);
        end(&mut world, &mut clients[0]);
        third.try_allocate(&mut world, |_| ()).success();
        world.server.end_all(world.now, EndReason::Shutdown);
        assert!(world.carry_out().is_empty());
        world.check();
        assert_eq!(world.server.allocation_count(), 0, "end {index}");
    }
}

/// A dual allocation takes a single slot, until its second half ends.
#[test]
fn half_a_dual_allocation_gives_no_place_back() {
    let mut limited = policy();
    limited.quotas.allocations_per_user = 1;
    let mut world = World::with(limited);
    let mut client = Client::new(1000);
    client.allocate_both(&mut world);
    client.refresh_half(&mut world, 2, 0).success();
    let mut second = Client::new(1001);
    second.try_allocate(&mut world, |_| ()).refused(486);
    client.refresh_half(&mut world, 1, 0).success();
    second.try_allocate(&mut world, |_| ()).success();
}

/// State before authentication, the commonest way to exhaust such a server: a flood from forged
/// addresses, with every kind of wrong credentials, leaves nothing and causes no look-up.
#[test]
fn a_flood_without_credentials_leaves_nothing_behind() {
    let mut world = World::new();
    let mut witness = Client::at("198.51.100.9:9");
    witness.log_in(&mut world);
    for port in 1..=2000 {
        let mut client = Client::new(port);
        client.nonce = witness.nonce.clone(); // a real nonce, but another client's
        for method in [Method::ALLOCATE, Method::REFRESH, Method::CHANNEL_BIND] {
            let request = client.sealed(&mut world, method, |_| ());
            assert_eq!(client.exchange(&mut world, &request).code(), Some(438));
        }
        let indication = client.send(&mut world, PEER, b"x");
        assert_eq!(indication.dropped(), DropReason::NoAllocation);
    }
    assert_eq!((world.looked_up, world.opened, world.server.allocation_count()), (0, 0, 0));
    assert_eq!(world.server.poll_timeout(), None);
}

/// Two servers could answer each other forever. A response never gets a response, and an indication
/// gets none either.
#[test]
fn an_answer_is_never_answered() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    for method in [Method::BINDING, Method::ALLOCATE, Method::REFRESH] {
        let request = client.bare(method, |_| ());
        let answer = client.exchange(&mut world, &request).bytes;
        let fate = world.from_client(&client.path, &answer);
        assert_eq!(fate.dropped(), DropReason::UnexpectedResponse);
    }
}

/// Channel numbers that were accepted up to 0xFFFF in other servers. Time-outs that ended a silent
/// client's allocation long before its expiry: 8656-12.2-02, 8656-6-04.
#[test]
fn a_silent_client_keeps_its_allocation_for_its_lifetime() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    for number in [0x3FFF, 0x5000, 0x7FFE, 0xFFFF] {
        client.bind(&mut world, number, PEER).refused(400);
    }
    world.advance(secs(599));
    client.refresh(&mut world, None).success();
}
