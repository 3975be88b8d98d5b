//! Differential test of the programs and the rules. A frame either leaves exactly as `turn-proto`
//! would send it, or passes to user space unaltered.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::support;

use netsim::Rng;
use test_support::for_each_seed;
use xdp_relay::device::Hook;
use xdp_relay::{Flow, FlowCounters, FlowId, FrameContext, Proof, Verdict};

use crate::support::frame::{Check, Datagram, ETHERNET};
use crate::support::network::{GATEWAY, ip, near};
use crate::support::random::{Client, Known, SPECIAL, four, make, populate};
use crate::support::world::{COMES, HOOKS, flow, hex, is_runnable};
use crate::support::{World, inside};

/// Number of frames of a seed, for each hook.
const FRAMES: usize = 5_000;

/// Age of a world at the start. Routes that must be expired were valid for one second.
const AGO: Duration = Duration::from_secs(3);

#[test]
fn frames_leave_by_the_rules_or_pass_unchanged() {
    for_each_seed(0..4, |seed| HOOKS.into_iter().for_each(|hook| inside(|| run(seed, hook))));
}

fn run(seed: u64, hook: Hook) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(AGO);
    let flows = populate(&mut world, &mut rng);
    let mut became = BTreeMap::<(&str, &str), usize>::new();
    for number in 0..FRAMES {
        let made = make(&mut rng, &flows);
        if !is_runnable(hook, &made.bytes) {
            continue;
        }
        let judged = world.judge(hook, &made.bytes);
        let is_pass = judged.verdict == Verdict::Pass;
        assert!(
            !(is_pass && made.ordinary && judged.may_be_relayed),
            "frame {number} is ordinary and passed ({:?}): {}\n{:?}",
            judged.passed,
            hex(&made.bytes),
            made.flow
        );
        let fate = if is_pass { "passed" } else { "relayed" };
        *became.entry((made.special, fate)).or_default() += 1;
    }
    assert!(became[&("nothing", "relayed")] > FRAMES / 4, "{became:?}");
    for special in SPECIAL {
        assert!(became.keys().any(|(seen, _)| *seen == special), "{special} never came");
    }
    // The traffic compared frame by frame equals the server's counts.
    assert_eq!(world.oracle.relayed, without_drops(&world));
}

/// Returns the server's counts for allocations that relayed something.
fn without_drops(world: &World) -> BTreeMap<turn_types::AllocationId, turn_proto::Traffic> {
    let mut counted = world.oracle.counted();
    for traffic in counted.values_mut() {
        traffic.dropped_packets = 0;
    }
    counted.retain(|_, traffic| *traffic != turn_proto::Traffic::default());
    counted
}

/// Runs a test for both directions of a flow, at both hooks, in a separate world for each hook.
fn each_direction(mut test: impl FnMut(&mut World, Hook, &Known, bool) + Send) {
    for hook in HOOKS {
        inside(|| {
            let mut world = World::new(Duration::ZERO);
            for flow in four(&mut world) {
                for to_client in [false, true] {
                    test(&mut world, hook, &flow, to_client);
                }
            }
        });
    }
}

#[test]
fn every_length_that_fits_is_relayed() {
    each_direction(|world, hook, flow, to_client| {
        let data = Rng::new(1).bytes(1472);
        for len in 0..=data.len() {
            let frame = flow.frame(to_client, &data[..len]);
            let judged = world.judge(hook, &frame);
            let relayed = judged.verdict == Verdict::Redirect;
            assert_eq!(relayed, judged.may_be_relayed, "{len} bytes: {:?}", judged.passed);
            assert!(relayed || len > 1400, "{len} bytes: {:?}", judged.passed);
        }
    });
}

/// A frame may have any bytes after the datagram.
#[test]
fn a_datagram_shorter_than_a_header_is_no_channel_data() {
    each_direction(|world, hook, flow, to_client| {
        if to_client {
            return;
        }
        for len in 0..4 {
            // Together with the trailing bytes the payload looks like a header. Its length field is
            // the number of payload bytes after the header, which is negative.
            let header = [flow.channel.to_be_bytes(), (0xFFFC + len as u16).to_be_bytes()].concat();
            let short = Datagram { payload: header[..len].to_vec(), ..flow.comes(false, b"data") };
            let mut frame = short.frame(COMES, Check::Right);
            frame.extend(&header[len..]);
            frame.extend([0; 40]);
            assert_eq!(world.passed(hook, &frame), None, "{len} bytes");
        }
    });
}

/// Relay sockets do not set DF, and select the identification of sent packets.
#[test]
fn df_and_identification_are_not_copied() {
    each_direction(|world, hook, flow, to_client| {
        let comes = flow.comes(to_client, b"data");
        let (to_v4, from_v4) = if to_client {
            (flow.client.is_ipv4(), flow.peer.is_ipv4())
        } else {
            (flow.peer.is_ipv4(), flow.client.is_ipv4())
        };
        if !to_v4 || !from_v4 {
            return;
        }
        let marked = Datagram { dont_fragment: true, id: 0x1234, ..comes };
        let left = [(); 4].map(|()| {
            let left = world.relayed(hook, &marked.frame(COMES, Check::Right));
            let left = support::frame::read(&left).unwrap().datagram;
            assert!(!left.dont_fragment);
            left.id
        });
        assert!(left != [0x1234; 4] && left != [left[0]; 4], "{left:x?}");
    });
}

#[test]
fn every_traffic_class_and_every_time_to_live_is_kept() {
    each_direction(|world, hook, flow, to_client| {
        for value in 0..=u8::MAX {
            let plain = flow.comes(to_client, b"odd");
            let classed = Datagram { tos: value, ..plain.clone() };
            world.relayed(hook, &classed.frame(COMES, Check::Right));
            let aged = Datagram { ttl: value, ..plain };
            let judged = world.judge(hook, &aged.frame(COMES, Check::Right));
            assert_eq!(judged.verdict == Verdict::Redirect, value > 1, "{value}");
        }
    });
}

#[test]
fn every_checksum_is_carried_over() {
    let mut turn = 0;
    each_direction(|world, hook, flow, to_client| {
        // Valid checksums: a word of payload takes all values, an eighth of them in each run.
        turn += 1;
        for word in (0..=u16::MAX).skip(turn % 8).step_by(8) {
            let data = [&word.to_be_bytes()[..], b"odd"].concat();
            let comes = flow.comes(to_client, &data);
            let judged = world.judge(hook, &comes.frame(COMES, Check::Right));
            assert!(judged.verdict == Verdict::Redirect || !judged.may_be_relayed, "{word:x}");
        }
        // Invalid checksums remain invalid, by an equal difference.
        let comes = flow.comes(to_client, b"data");
        for by in (1..0xFFFF).step_by(97).chain([0x7FFF, 0x8000, 0xFFFE]) {
            let judged = world.judge(hook, &comes.frame(COMES, Check::Wrong(by)));
            assert!(judged.verdict == Verdict::Redirect || !judged.may_be_relayed, "{by:x}");
        }
    });
}

#[test]
fn a_peer_may_send_payload_like_channel_data() {
    each_direction(|world, hook, known, _| {
        // Listener at another address of this host, at an equal port.
        let route = *world.oracle.routes.values().next().unwrap();
        let mut server = known.server;
        server.set_port(known.relayed.port());
        let elsewhere = Flow { server, peer: "192.0.2.1:1".parse().unwrap(), ..flow(&route) };
        let id = FlowId { allocation: route.id.allocation, channel: 0x4FFF };
        world.routes.set(linux_net::Clock::instant(), id, &elsewhere).unwrap();
        for padding in 0..8 {
            let data = [&known.channel.to_be_bytes()[..], &[0, 1, 7], &vec![0; padding]].concat();
            world.relayed(hook, &known.frame(true, &data));
        }
        world.routes.remove(id);
    });
}

#[test]
fn truncated_frames_are_left_alone() {
    each_direction(|world, hook, flow, to_client| {
        let frame = flow.frame(to_client, &[7; 60]);
        for len in (ETHERNET..frame.len()).filter(|len| is_runnable(hook, &frame[..*len])) {
            assert_eq!(world.passed(hook, &frame[..len]), None, "{len}");
        }
        world.relayed(hook, &frame);
    });
}

#[test]
fn metadata_before_a_frame_stays_there() {
    inside(|| {
        let mut world = World::new(Duration::ZERO);
        for flow in four(&mut world) {
            for to_client in [false, true] {
                let frame = [vec![0xAB; 32], flow.frame(to_client, b"data")].concat();
                let judged = world.judge_as(Hook::Xdp, &frame, FrameContext::Behind(32));
                assert_eq!(judged.verdict, Verdict::Redirect, "{:?}", judged.passed);
            }
        }
    });
}

#[test]
fn a_channel_bound_again_reaches_no_other_peer() {
    for hook in HOOKS {
        inside(|| {
            let second = Duration::from_secs(1);
            let mut world = World::with(AGO, Proof::NOT_REQUIRED, |policy| {
                policy.lifetimes.channel = second;
            });
            let before = four(&mut world);
            let usual = Duration::from_secs(600);
            world.oracle.apply(|policy| policy.lifetimes.channel = usual);
            world.present();
            for flow in &before {
                assert_eq!(world.passed(hook, &flow.frame(false, b"data")), Some("expired"));
            }
            for flow in &before {
                let mut peer = flow.peer;
                peer.set_port(5001);
                world.oracle.bind((flow.client, flow.server), flow.channel, peer);
                let after = Known { peer, ..*flow };
                world.relayed(hook, &after.frame(false, b"data"));
                world.relayed(hook, &after.frame(true, b"data"));
                assert_eq!(world.passed(hook, &flow.frame(true, b"data")), None);
            }
            assert_eq!(world.routes.len(), before.len());
        });
    }
}

/// Rate at which a bucket regains nothing during a test, in bytes per second.
const SLOW: u64 = 1;

/// Capacity of a bucket at this rate in bytes: the largest packet.
const HELD: usize = 65_507 + 48;

/// Number of packets of [`exhaust`] that fit in a bucket, with headers of IPv6 and of IPv4.
const HELD_PACKETS: std::ops::RangeInclusive<usize> = HELD / 1048..=HELD / 1028;

#[test]
fn a_bandwidth_ends_where_the_rules_end_it() {
    for hook in HOOKS {
        inside(|| {
            let mut world = slow();
            let flows = four(&mut world);
            for to_client in [false, true] {
                for pair in flows.chunks(2) {
                    let passed = exhaust(&mut world, hook, pair, to_client);
                    assert!(HELD_PACKETS.contains(&passed), "{passed}");
                }
            }
            // A new binding of the channel does not restore the old route.
            world.present();
            for flow in &flows {
                world.oracle.bind((flow.client, flow.server), flow.channel, flow.peer);
                for to_client in [false, true] {
                    let judged = world.judge(hook, &flow.frame(to_client, &[0; 900]));
                    assert_eq!(judged.verdict, Verdict::Drop);
                    world.relayed(hook, &flow.frame(to_client, b""));
                }
            }
        });
    }
}

#[test]
fn a_bandwidth_comes_back_with_time() {
    for hook in HOOKS {
        inside(|| {
            let mut world = World::with(Duration::ZERO, Proof::NOT_REQUIRED, |policy| {
                policy.quotas.bytes_per_second = 100_000;
            });
            let one = four(&mut world)[0];
            let frame = one.frame(false, &[0; 1400]);
            world.relayed(hook, &frame);
            let end = linux_net::Clock::instant() + Duration::from_secs(20);
            for wanted in [Verdict::Drop, Verdict::Redirect] {
                loop {
                    let now = linux_net::Clock::instant();
                    world.routes.renew(now);
                    if world.path.run(hook, &frame, 1).unwrap().verdict == wanted {
                        break;
                    }
                    assert!(now < end, "no {wanted:?}");
                }
            }
        });
    }
}

#[test]
fn the_way_is_that_of_the_traffic_class() {
    const CLASS: u8 = 0x10;
    const OTHER: u8 = 19;
    for hook in HOOKS {
        inside(|| {
            let mut world = World::new(Duration::ZERO);
            let mut client = Client::new(&mut world, &mut Rng::new(1), false);
            let [v4, v6] = near(1, OTHER);
            ip(&format!("route add 0.0.0.0/0 via {v4} table 77\nroute add ::/0 via {v6} table 77"));
            for family in ["-4", "-6"] {
                let rule = format!("{family} rule add tos {CLASS:#x} table 77");
                let arguments = rule.split_whitespace();
                assert!(Command::new("ip").args(arguments).status().unwrap().success());
            }
            for peer in ["203.0.113.9:9", "[2600::9]:9"] {
                let flow = client.bind(&mut world, peer.parse().unwrap());
                let comes = flow.comes(false, b"data");
                for (tos, host) in [(0, GATEWAY), (CLASS, OTHER), (CLASS | 1, OTHER)] {
                    let frame = Datagram { tos, ..comes.clone() }.frame(COMES, Check::Right);
                    world.tell();
                    world.routes.renew(linux_net::Clock::instant());
                    let ran = world.path.run(hook, &frame, 1).unwrap();
                    assert_eq!((ran.verdict, ran.frame[5]), (Verdict::Redirect, host), "{tos}");
                }
            }
        });
    }
}

#[test]
fn the_next_flow_of_a_slot_starts_with_a_full_bucket() {
    for hook in HOOKS {
        inside(|| {
            let mut world = slow();
            let mut rng = Rng::new(3);
            for number in 0..3 {
                let mut client = Client::new(&mut world, &mut rng, number % 2 == 0);
                let flow = client.bind(&mut world, "10.9.2.9:9".parse().unwrap());
                for to_client in [false, true] {
                    let passed = exhaust(&mut world, hook, &[flow], to_client);
                    assert!(HELD_PACKETS.contains(&passed), "{passed}");
                }
                world.oracle.end(client.at, client.server);
                assert_eq!(world.passed(hook, &flow.frame(false, b"data")), None);
                assert!(world.routes.is_empty());
            }
        });
    }
}

#[test]
fn the_last_traffic_is_reported_when_a_flow_is_removed() {
    for hook in HOOKS {
        inside(|| {
            let mut world = World::new(Duration::ZERO);
            let flows = four(&mut world);
            world.relayed(hook, &flows[0].frame(false, b"data"));
            for to_client in [false, true, true] {
                let frame = flows[0].frame(to_client, b"more data");
                let ran = world.path.run(hook, &frame, 1).unwrap();
                assert_eq!(ran.verdict, Verdict::Redirect);
            }
            let [allocation, _] = world.oracle.counted().into_keys().collect::<Vec<_>>()[..] else {
                panic!("two clients")
            };
            let id = FlowId { allocation, channel: flows[0].channel };
            let last = FlowCounters {
                to_peer_packets: 1,
                to_peer_bytes: 9,
                to_client_packets: 2,
                to_client_bytes: 18,
                ..FlowCounters::default()
            };
            assert_eq!(world.routes.remove(id), last);
            assert_eq!(world.routes.remove(id), FlowCounters::default());
            // Neither the other flow of the allocation nor the next flow of the slot has traffic.
            let told = world.routes.of_allocation(allocation).unwrap();
            assert_eq!(
                (told.flows, told.total, told.last_seen),
                (1, FlowCounters::default(), None)
            );
            let now = linux_net::Clock::instant();
            let mut route =
                *world.oracle.routes.values().find(|r| r.id.channel == id.channel).unwrap();
            world.routes.set(now, id, &flow(&route)).unwrap();
            let told = world.routes.of_allocation(allocation).unwrap();
            assert_eq!(
                (told.flows, told.total, told.last_seen),
                (2, FlowCounters::default(), None)
            );
            // A flow that is set to another peer leaves no old route.
            route.peer.0.set_port(1);
            world.routes.set(now, id, &flow(&route)).unwrap();
            world.routes.renew(now);
            for (peer, wanted) in
                [(flows[0].peer, Verdict::Pass), (route.peer.0, Verdict::Redirect)]
            {
                let frame = Known { peer, ..flows[0] }.frame(true, b"data");
                assert_eq!(world.path.run(hook, &frame, 1).unwrap().verdict, wanted);
            }
        });
    }
}

/// Creates a world in which allocations may send little.
fn slow() -> World {
    World::with(Duration::ZERO, Proof::NOT_REQUIRED, |policy| policy.quotas.bytes_per_second = SLOW)
}

/// Sends on all channels of an allocation until the limit is exceeded. The rules have an equal
/// result each time.
fn exhaust(world: &mut World, hook: Hook, flows: &[Known], to_client: bool) -> usize {
    let frames: Vec<_> = flows.iter().map(|flow| flow.frame(to_client, &[0; 1000])).collect();
    let verdicts = frames.iter().cycle().take(70).map(|frame| world.judge(hook, frame).verdict);
    verdicts.filter(|verdict| *verdict == Verdict::Redirect).count()
}

#[test]
fn a_hairpin_is_within_the_bandwidth_of_both() {
    for hook in HOOKS {
        inside(|| {
            let mut world = slow();
            let mut rng = Rng::new(1);
            let mut clients: Vec<Client> =
                [false, true, false].map(|v6| Client::new(&mut world, &mut rng, v6)).into();
            let to_last = |world: &mut World, clients: &mut [Client], from: usize| {
                let [first, last] = [clients[from].relayed[0], clients[2].relayed[0]];
                clients[2].bind(world, first);
                clients[from].bind(world, last)
            };
            let [one, other] = [0, 1].map(|from| to_last(&mut world, &mut clients, from));
            let passed = exhaust(&mut world, hook, &[one], false);
            assert!(HELD_PACKETS.contains(&passed), "{passed}");
            // The other allocation may still send, but not receive. Its packets are counted.
            let judged = world.judge(hook, &other.frame(false, &[0; 900]));
            assert_eq!(judged.verdict, Verdict::Drop);
        });
    }
}

#[test]
fn kernel_traffic_of_an_allocation_equals_the_rules_counts() {
    for hook in HOOKS {
        inside(|| {
            let mut world = World::new(Duration::ZERO);
            let flows = four(&mut world);
            world.tell();
            // Waits until the programs' clock, which may lag, has passed the start.
            std::thread::sleep(Duration::from_millis(50));
            let start = linux_net::Clock::instant();
            let mut rng = Rng::new(9);
            for _ in 0..200 {
                let flow = rng.pick(&flows);
                let data = rng.bytes(100);
                let to_client = rng.below(2) == 0;
                world.relayed(hook, &flow.frame(to_client, &data));
            }
            let counted = world.oracle.counted();
            assert_eq!(counted.len(), 2);
            for (id, traffic) in counted {
                let told = world.routes.of_allocation(id).unwrap();
                assert_eq!(told.flows, 2);
                let last_seen = told.last_seen.unwrap();
                assert!(last_seen + Duration::from_millis(20) > start, "{last_seen:?}, {start:?}");
                let carried = FlowCounters {
                    to_peer_packets: traffic.to_peer_packets,
                    to_peer_bytes: traffic.to_peer_bytes,
                    to_client_packets: traffic.to_client_packets,
                    to_client_bytes: traffic.to_client_bytes,
                    ..FlowCounters::default()
                };
                assert_eq!(told.total, carried);
            }
        });
    }
}
