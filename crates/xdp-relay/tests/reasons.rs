//! Reasons for which packets with a route pass to user space. Each reason has a counter, and the
//! packet is unaltered.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use netsim::Rng;
use turn_types::Instant;
use xdp_relay::device::Hook;
use xdp_relay::limits::LEASE;
use xdp_relay::{FrameContext, Link, Proof, Verdict};

use crate::support::frame::{Check, Datagram};
use crate::support::network::{LINKS, SILENT, address, ip, near};
use crate::support::random::{Client, Known, four, plain};
use crate::support::world::{COMES, HOOKS, INBOUND};
use crate::support::{World, inside};

type Case = fn(Hook);

/// Test cases by name of the counter.
const REASONS: [(&str, &[Hook], &[Case]); 18] = [
    ("expired", &HOOKS, &[no_lease, ended, no_permission]),
    ("proof_renewal", &HOOKS, &[shown]),
    ("ttl", &HOOKS, &[last_hop, last_hop_of_two]),
    ("checksum", &HOOKS, &[none_to_v6, partial_by_chance]),
    ("hairpin", &HOOKS, &[one_sided, one_sided_permitted, one_sided_by_now, forged]),
    ("no_route", &HOOKS, &[no_way, unreachable, no_forwarding]),
    ("no_neighbour", &HOOKS, &[silent]),
    ("too_long", &HOOKS, &[narrow, grown]),
    ("link", &HOOKS, &[no_leave, unknown]),
    ("merged", &[Hook::Tc], &[merged]),
    ("room", &[Hook::Xdp], &[no_room]),
    // Reasons of ring routes: tests/ring_delivery.rs.
    ("ring", &[], &[]),
    // Routes that are withdrawn during the look-up: tests/races.rs.
    ("stale", &[], &[]),
    // No test can bring a processor online.
    ("processor", &[], &[]),
    ("unproven", &HOOKS, &[unproven]),
    ("moved", &HOOKS, &[moved]),
    // Each header field, and the time afterwards: tests/evidence.rs.
    ("altered", &HOOKS, &[altered]),
    ("overtaken", &HOOKS, &[overtaken]),
];

#[test]
fn every_reason_has_its_counter() {
    let mut names = None;
    inside(|| {
        let passed = World::new(Duration::ZERO).path.passed();
        names = Some(passed.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>());
    });
    let Some(names) = names else { return }; // told as skipped
    assert_eq!(names, REASONS.iter().map(|(name, ..)| *name).collect());
    for (name, hooks, cases) in REASONS {
        for hook in hooks {
            for (number, case) in cases.iter().enumerate() {
                eprintln!("{name}, case {number}, by {hook}");
                inside(|| case(*hook));
            }
        }
    }
}

fn world() -> (World, Vec<Known>) {
    let mut world = World::new(Duration::ZERO);
    let flows = four(&mut world);
    (world, flows)
}

/// Returns frames of both directions of each flow.
fn both(flows: &[Known]) -> Vec<Vec<u8>> {
    let frames = |flow: &Known| [false, true].map(|to_client| flow.frame(to_client, b"data"));
    flows.iter().flat_map(frames).collect()
}

fn relayed(world: &mut World, hook: Hook, frames: &[Vec<u8>]) {
    for frame in frames {
        world.relayed(hook, frame);
    }
}

fn passed(world: &mut World, hook: Hook, frames: &[Vec<u8>], why: &str) {
    for frame in frames {
        assert_eq!(world.passed(hook, frame), Some(why));
    }
}

fn no_lease(hook: Hook) {
    let (mut world, flows) = world();
    relayed(&mut world, hook, &both(&flows));
    world.renew = false;
    let now = linux_net::Clock::instant();
    // The programs' clock lags by some milliseconds.
    let long_ago = now.as_nanos() - (LEASE + Duration::from_millis(100)).as_nanos() as u64;
    world.routes.renew(Instant::from_nanos(long_ago));
    passed(&mut world, hook, &both(&flows), "expired");
    world.routes.renew(now);
    relayed(&mut world, hook, &both(&flows));
    world.routes.suspend();
    passed(&mut world, hook, &both(&flows), "expired");
    world.routes.renew(now);
    relayed(&mut world, hook, &both(&flows));
}

/// Creates a world in which permissions, or channels too, lasted for one second and expired some
/// seconds ago.
fn past(channel_too: bool) -> (World, Vec<Known>) {
    let ago = Duration::from_secs(3);
    let mut world = World::with(ago, Proof::NOT_REQUIRED, |policy| {
        policy.lifetimes.permission = Duration::from_secs(1);
        if channel_too {
            policy.lifetimes.channel = Duration::from_secs(1);
        }
    });
    let flows = four(&mut world);
    world.tell();
    world.present();
    (world, flows)
}

fn ended(hook: Hook) {
    let (mut world, flows) = past(true);
    passed(&mut world, hook, &both(&flows), "expired");
}

fn no_permission(hook: Hook) {
    let (mut world, flows) = past(false);
    for flow in flows {
        world.relayed(hook, &flow.frame(false, b"data"));
        assert_eq!(world.passed(hook, &flow.frame(true, b"data")), Some("expired"));
    }
}

const LONG: Duration = Duration::from_secs(600);
/// Time that exceeds the lag of the programs' clock.
const SOON: Duration = Duration::from_millis(20);

/// Creates a world that requires proofs.
fn proving(renew_every: Duration) -> (World, Vec<Known>) {
    let mut world = World::with(Duration::ZERO, Proof { holds: LONG, renew_every }, |_| {});
    let flows = four(&mut world);
    (world, flows)
}

/// Returns each direction of each flow.
fn directions(flows: &[Known]) -> impl Iterator<Item = (&Known, bool)> {
    flows.iter().flat_map(|flow| [(flow, false), (flow, true)])
}

/// Makes a packet of a direction leave through the stack, as sent by the server. The packet leaves
/// by the expected interface, or by the other interface.
fn leave(world: &World, flow: &Known, to_client: bool, other: bool) {
    world.leave(&[flow.leaves(to_client, b"data")], other);
    // Waits until packets that entered the stack before have left.
    std::thread::sleep(Duration::from_millis(6));
}

fn shown(hook: Hook) {
    let (mut world, flows) = proving(SOON);
    for (flow, to_client) in directions(&flows) {
        let frame = flow.frame(to_client, b"data");
        assert_eq!(world.passed(hook, &frame), Some("unproven"));
        leave(&world, flow, to_client, false);
        for _ in 0..3 {
            world.relayed(hook, &frame);
            std::thread::sleep(SOON * 4);
            // First packet after the pause, which started when renewal was due.
            world.relayed(hook, &frame);
            std::thread::sleep(Duration::from_millis(1));
            // The packet that renews the proof is punted, and the next packet follows it.
            assert_eq!(world.passed(hook, &frame), Some("proof_renewal"));
            assert_eq!(world.passed(hook, &frame), Some("proof_renewal"));
            leave(&world, flow, to_client, false);
            leave(&world, flow, to_client, false);
        }
    }
}

fn unproven(hook: Hook) {
    for to_client in [false, true] {
        let (mut world, flows) = proving(LONG);
        for flow in &flows {
            let frame = flow.frame(to_client, b"data");
            for _ in 0..300 {
                assert_eq!(world.passed(hook, &frame), Some("unproven"));
            }
            // A packet of the other direction does not prove this direction.
            leave(&world, flow, !to_client, false);
            assert_eq!(world.passed(hook, &frame), Some("unproven"));
            leave(&world, flow, to_client, false);
            world.relayed(hook, &frame);
            world.relayed(hook, &frame);
        }
        for link in LINKS {
            ip(&format!("link del {link}"));
        }
    }
    ages(hook);
}

/// A proof expires.
fn ages(hook: Hook) {
    let holds = Duration::from_secs(1);
    let mut world = World::with(Duration::ZERO, Proof { holds, renew_every: holds }, |_| {});
    let flow = four(&mut world)[0];
    let frame = flow.frame(false, b"data");
    assert_eq!(world.passed(hook, &frame), Some("unproven"));
    leave(&world, &flow, false, false);
    let begun = std::time::Instant::now();
    while world.judge(hook, &frame).passed != Some("unproven") {
        assert!(begun.elapsed() < Duration::from_secs(10), "it holds for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Packets leave the stack by another interface than the program would use.
fn moved(hook: Hook) {
    let (mut world, flows) = proving(LONG);
    for (flow, to_client) in directions(&flows) {
        let frame = flow.frame(to_client, b"data");
        assert_eq!(world.passed(hook, &frame), Some("unproven"));
        leave(&world, flow, to_client, true);
        assert_eq!(world.passed(hook, &frame), Some("moved"));
        leave(&world, flow, to_client, false);
        world.relayed(hook, &frame);
    }
}

/// The host changes a packet of a direction.
fn altered(hook: Hook) {
    let (mut world, flows) = proving(LONG);
    for (flow, to_client) in directions(&flows) {
        let frame = flow.frame(to_client, b"data");
        assert_eq!(world.passed(hook, &frame), Some("unproven"));
        world.leave(&[Datagram { tos: 0xB8, ..flow.leaves(to_client, b"data") }], false);
        assert_eq!(world.passed(hook, &frame), Some("altered"));
    }
}

/// A proof is due for renewal, and the punted packet does not leave.
fn overtaken(hook: Hook) {
    let (mut world, flows) = proving(SOON);
    for (flow, to_client) in directions(&flows) {
        let frame = flow.frame(to_client, b"data");
        assert_eq!(world.passed(hook, &frame), Some("unproven"));
        leave(&world, flow, to_client, false);
        world.relayed(hook, &frame);
        std::thread::sleep(SOON * 4);
        world.relayed(hook, &frame);
        std::thread::sleep(Duration::from_millis(1));
        let before = world.path.passed();
        let mut shown = 0;
        while world.path.run(hook, &frame, 1).unwrap().verdict == Verdict::Pass {
            shown += 1;
            assert!(shown <= 256, "bounded");
        }
        let after = world.path.passed();
        let rose = |name| {
            let of = |all: &[(&str, u64)]| all.iter().find(|(n, _)| *n == name).unwrap().1;
            of(&after) - of(&before)
        };
        assert_eq!((rose("proof_renewal"), rose("overtaken")), (shown, 1));
        // Renewal is not tried again immediately.
        assert_eq!(world.path.run(hook, &frame, 1).unwrap().verdict, Verdict::Redirect);
        world.routes.sweep(linux_net::Clock::instant(), usize::MAX, |_, _| {});
    }
}

fn last_hop(hook: Hook) {
    let (mut world, flows) = world();
    for flow in flows {
        for (to_client, ttl) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
            let last = Datagram { ttl, ..flow.comes(to_client, b"data") };
            passed(&mut world, hook, &[last.frame(COMES, Check::Right)], "ttl");
            // The packet is examined for a partial checksum, and unaltered.
            passed(&mut world, hook, &[last.frame(COMES, Check::Pseudo)], "ttl");
        }
    }
}

/// Creates two allocations. The first has a channel to the other. The other has a permission for
/// the first, or also a channel.
fn pair(world: &mut World, permitted: bool, bound: bool) -> (Known, Option<Known>) {
    let mut rng = Rng::new(6);
    let [mut one, mut other] = [false, true].map(|v6| Client::new(world, &mut rng, v6));
    let there = one.bind(world, other.relayed[1]);
    if permitted {
        world.oracle.permit(other.at, other.server, one.relayed[1]);
    }
    let back = bound.then(|| other.bind(world, one.relayed[1]));
    (there, back)
}

fn last_hop_of_two(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let (there, _) = pair(&mut world, false, true);
    let of = |ttl| Datagram { ttl, ..there.comes(false, b"data") }.frame(COMES, Check::Right);
    passed(&mut world, hook, &[of(1), of(2)], "ttl");
    world.relayed(hook, &of(3));
}

fn none_to_v6(hook: Hook) {
    let (mut world, flows) = world();
    for flow in flows {
        for to_client in [false, true] {
            let comes = flow.comes(to_client, b"data");
            let frame = comes.frame(COMES, Check::Zero);
            if flow.client.is_ipv4() && flow.peer.is_ipv4() {
                world.relayed(hook, &frame);
            } else {
                passed(&mut world, hook, &[frame], "checksum");
            }
        }
    }
}

/// The link is not virtual, so no partial checksums arrive. The checksum is complete, and equal to
/// a partial checksum by chance.
fn partial_by_chance(hook: Hook) {
    let (mut world, flows) = world();
    world.path.set_link(Link { partial_at_xdp: false, ..INBOUND }).unwrap();
    for flow in flows {
        for to_client in [false, true] {
            let comes = flow.comes(to_client, b"data");
            let frame = comes.frame(COMES, Check::Pseudo);
            if hook == Hook::Tc {
                world.relayed(hook, &frame);
            } else {
                passed(&mut world, hook, &[frame], "checksum");
            }
        }
    }
}

fn one_sided(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let (there, _) = pair(&mut world, false, false);
    passed(&mut world, hook, &[there.frame(false, b"data")], "hairpin");
}

/// The other allocation delivers the data as a Data indication.
fn one_sided_permitted(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let (there, _) = pair(&mut world, true, false);
    passed(&mut world, hook, &[there.frame(false, b"data")], "hairpin");
}

/// The other allocation has a channel, and an expired permission.
fn one_sided_by_now(hook: Hook) {
    let ago = Duration::from_secs(3);
    let mut world = World::with(ago, Proof::NOT_REQUIRED, |policy| {
        policy.lifetimes.permission = Duration::from_secs(1);
    });
    let (there, back) = pair(&mut world, false, true);
    world.tell();
    world.present();
    for flow in [there, back.unwrap()] {
        passed(&mut world, hook, &[flow.frame(false, b"data")], "hairpin");
    }
}

/// The packet arrives from a link, with a local source address.
fn forged(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let (there, back) = pair(&mut world, false, true);
    let back = back.unwrap();
    relayed(&mut world, hook, &[there.frame(false, b"data"), back.frame(false, b"data")]);
    passed(&mut world, hook, &[there.frame(true, b"data"), back.frame(true, b"data")], "hairpin");
}

/// Creates a client with a channel to a peer.
fn one(world: &mut World, peer: &str) -> Known {
    let mut client = Client::new(world, &mut Rng::new(6), false);
    client.bind(world, SocketAddr::new(address(peer), 7))
}

const FAR: [&str; 2] = ["203.0.113.9", "2600::9"];

fn no_way(hook: Hook) {
    for peer in FAR {
        let mut world = World::new(Duration::ZERO);
        let flow = one(&mut world, peer);
        world.relayed(hook, &flow.frame(false, b"data"));
        ip(if flow.peer.is_ipv6() { "route del ::/0" } else { "route del 0.0.0.0/0" });
        passed(&mut world, hook, &[flow.frame(false, b"data")], "no_route");
        // A route back to the client still exists.
        world.relayed(hook, &flow.frame(true, b"data"));
        for link in LINKS {
            ip(&format!("link del {link}"));
        }
    }
}

fn unreachable(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let flows = FAR.map(|peer| one_of(&mut world, peer));
    for (flow, peer) in flows.iter().zip(FAR) {
        for kind in ["unreachable", "prohibit", "blackhole"] {
            world.relayed(hook, &flow.frame(false, b"data"));
            ip(&format!("route add {kind} {peer}"));
            passed(&mut world, hook, &[flow.frame(false, b"data")], "no_route");
            ip(&format!("route del {kind} {peer}"));
        }
    }
}

/// Creates another client with a channel to a peer.
fn one_of(world: &mut World, peer: &str) -> Known {
    let mut client = Client::new(world, &mut Rng::new(peer.len() as u64), true);
    client.bind(world, SocketAddr::new(address(peer), 7))
}

fn no_forwarding(hook: Hook) {
    let (mut world, flows) = world();
    relayed(&mut world, hook, &both(&flows));
    for family in ["ipv4", "ipv6"] {
        std::fs::write(format!("/proc/sys/net/{family}/conf/lo/forwarding"), "0").unwrap();
    }
    passed(&mut world, hook, &both(&flows), "no_route");
}

fn silent(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let mut client = Client::new(&mut world, &mut Rng::new(6), false);
    for peer in near(1, SILENT) {
        let flow = client.bind(&mut world, SocketAddr::new(peer, 7));
        passed(&mut world, hook, &[flow.frame(false, b"data")], "no_neighbour");
    }
}

fn narrow(hook: Hook) {
    let (mut world, flows) = world();
    let long = |flow: &Known| flow.frame(false, &[7; 1300]);
    flows.iter().for_each(|flow| drop(world.relayed(hook, &long(flow))));
    ip(&format!("link set {} mtu 1300", LINKS[1]));
    for flow in flows {
        passed(&mut world, hook, &[long(&flow)], "too_long");
        world.relayed(hook, &flow.frame(false, &[7; 1200]));
        world.relayed(hook, &flow.frame(true, &[7; 1300]));
    }
}

/// The packet is short enough inbound, and too long outbound.
fn grown(hook: Hook) {
    let (mut world, flows) = world();
    for flow in flows {
        // Headers of IP and of UDP.
        let room = |at: SocketAddr| 1500 - 8 - if at.is_ipv6() { 40 } else { 20 };
        let to_peer = room(flow.peer).min(room(flow.client) - 4);
        let to_client = room(flow.client) - 4;
        world.relayed(hook, &flow.frame(false, &vec![7; to_peer]));
        world.relayed(hook, &flow.frame(true, &vec![7; to_client]));
        passed(&mut world, hook, &[flow.frame(true, &vec![7; to_client + 1])], "too_long");
        if flow.peer.is_ipv6() && flow.client.is_ipv4() {
            let most = vec![7; room(flow.client) - 4];
            passed(&mut world, hook, &[flow.frame(false, &most)], "too_long");
        }
    }
}

fn no_leave(hook: Hook) {
    let (mut world, flows) = world();
    let xdp = hook == Hook::Xdp;
    for (link, to_client) in [(1, false), (0, true)] {
        let frames: Vec<_> = flows.iter().map(|flow| flow.frame(to_client, b"data")).collect();
        relayed(&mut world, hook, &frames);
        let (index, mac) = (world.network.indices[link], world.network.macs[link]);
        // Packets may leave only by the other hook.
        world
            .path
            .set_link(Link { index, mac, leave_xdp: !xdp, leave_tc: xdp, partial_at_xdp: false })
            .unwrap();
        passed(&mut world, hook, &frames, "link");
        world
            .path
            .set_link(Link { index, mac, leave_xdp: xdp, leave_tc: !xdp, partial_at_xdp: false })
            .unwrap();
        relayed(&mut world, hook, &frames);
    }
}

/// The next hop is on a device that the program does not know.
fn unknown(hook: Hook) {
    let mut world = World::new(Duration::ZERO);
    let mut client = Client::new(&mut world, &mut Rng::new(6), true);
    ip("link add other0 address 02:c0:00:09:00:01 type veth peer name other0x");
    for device in ["other0", "other0x"] {
        ip(&format!("link set {device} up"));
    }
    for (at, len) in [("10.9.3.2", 32), ("fd09:3::2", 128)] {
        ip(&format!("route add {at}/{len} dev other0"));
        ip(&format!("neigh add {at} lladdr 02:c0:00:09:00:02 dev other0 nud permanent"));
        let flow = client.bind(&mut world, SocketAddr::new(address(at), 7));
        passed(&mut world, hook, &[flow.frame(false, b"data")], "link");
    }
}

fn merged(hook: Hook) {
    let (mut world, flows) = world();
    let ways = flows.iter().flat_map(|flow| [(flow, false), (flow, true)]);
    let other = flows[0].frame(false, b"data");
    for (number, (flow, to_client)) in ways.enumerate() {
        let frame = &flow.frame(to_client, b"data");
        world.relayed(hook, frame);
        for segments in [2, 64] {
            // Merged as by the kernel: one header, followed by all payloads.
            let mut merged = flow.comes(to_client, b"data");
            merged.payload = merged.payload.repeat(segments as usize);
            let merged = merged.frame(COMES, Check::Right);
            let len = flow.comes(to_client, b"data").payload.len() as u32;
            let judged = world.judge_as(hook, &merged, FrameContext::Merged(segments, len));
            assert_eq!((judged.verdict, judged.passed), (Verdict::Pass, Some("merged")));
        }
        // A single packet after the merged packets must not overtake them. Packets of other
        // directions and flows do not follow.
        assert_eq!(world.passed(hook, frame), Some("merged"));
        if number > 0 {
            world.relayed(hook, &other);
        }
        for _ in 0..2 + 64 + 1 {
            world.leave(&[flow.leaves(to_client, b"data")], false);
        }
        std::thread::sleep(Duration::from_millis(1));
        world.relayed(hook, frame);
    }
}

fn no_room(hook: Hook) {
    // The headroom of a frame has 256 bytes, of which the kernel needs the other 40.
    const TOLD: usize = 216;
    let (mut world, flows) = world();
    if world.path.run_as(hook, &[0; TOLD + 60], 1, FrameContext::Behind(TOLD as u32)).is_err() {
        return test_support::skip("this kernel takes no frame with so little room before it");
    }
    for flow in flows {
        for to_client in [false, true] {
            let frame = [&[0xAB; TOLD], &flow.frame(to_client, b"data")[..]].concat();
            let judged = world.judge_as(hook, &frame, FrameContext::Behind(TOLD as u32));
            let (from, to) =
                if to_client { (flow.peer, flow.client) } else { (flow.client, flow.peer) };
            let grows = match (from.is_ipv6(), to.is_ipv6()) {
                (false, true) => true,
                (true, false) => false,
                _ => to_client,
            };
            assert_eq!(judged.passed, grows.then_some("room"), "from {from} to {to}");
        }
    }
}

/// Packets without a route change no counter.
#[test]
fn packets_without_a_route_are_not_counted() {
    for hook in HOOKS {
        inside(|| {
            let (mut world, flows) = world();
            for flow in flows {
                let stranger = SocketAddr::new(flow.peer.ip(), 9);
                let mut last = plain(stranger, flow.relayed, b"data".to_vec());
                last.ttl = 1;
                assert_eq!(world.passed(hook, &last.frame(COMES, Check::Zero)), None);
            }
        });
    }
}
