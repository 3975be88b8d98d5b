//! Evidence of the host's treatment of a direction: the headers of a leaving packet that had
//! entered the stack. docs/adr/0009.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xdp_relay::device::Hook;
use xdp_relay::{Proof, Verdict};

use crate::support::frame::{Check, Datagram};
use crate::support::random::{Known, four};
use crate::support::world::{COMES, HOOKS};
use crate::support::{World, inside};

/// Time that exceeds each test, so nothing expires or becomes due.
const LONG: Duration = Duration::from_secs(600);

/// Time within which packets leave that entered the stack before the first proof.
const SETTLED: Duration = Duration::from_millis(6);

/// Returns a payload whose first bytes identify it, like a payload of RTP.
fn payload(number: u8) -> Vec<u8> {
    [[0x80, 111, 0, number], [0, 0, 7, number], [1, 2, 3, 4], [5; 4], [6; 4]].concat()
}

/// Runs a part of a test for both directions of flows of all families, at both hooks.
fn each(part: fn(&mut World, Hook, &Known, bool)) {
    for hook in HOOKS {
        inside(|| {
            let proof = Proof { holds: LONG, renew_every: LONG };
            let mut world = World::with(Duration::ZERO, proof, |_| {});
            for flow in four(&mut world) {
                for to_client in [false, true] {
                    part(&mut world, hook, &flow, to_client);
                }
            }
        });
    }
}

/// Sends a packet that enters the stack, because the direction is not proven.
#[track_caller]
fn enters(world: &mut World, hook: Hook, datagram: &Datagram) {
    let judged = world.judge(hook, &datagram.frame(COMES, Check::Right));
    assert_eq!(judged.verdict, Verdict::Pass);
}

#[test]
fn headers_as_sent_are_proof_whatever_they_are() {
    each(|world, hook, flow, to_client| {
        let header = |datagram, ttl| Datagram { tos: 0x2E, ttl, ..datagram };
        let comes = header(flow.comes(to_client, &payload(1)), 9);
        enters(world, hook, &comes);
        world.leave(&[header(flow.leaves(to_client, &payload(1)), 8)], false);
        sleep(SETTLED);
        // Other packets are relayed with the headers of each packet.
        world.relayed(hook, &flow.frame(to_client, &payload(2)));
    });
}

#[test]
fn each_changed_header_field_leaves_the_direction_to_the_sockets() {
    each(|world, hook, flow, to_client| {
        let sent = flow.leaves(to_client, &payload(1));
        let changed = [
            Datagram { tos: 0xB8, ..sent.clone() },
            Datagram { tos: 1, ..sent.clone() },
            Datagram { ttl: sent.ttl - 1, ..sent.clone() },
            Datagram { ttl: sent.ttl + 1, ..sent.clone() },
            Datagram { dont_fragment: true, ..sent.clone() },
        ];
        for changed in changed.into_iter().filter(|one| sent.is_v4() || !one.dont_fragment) {
            enters(world, hook, &flow.comes(to_client, &payload(1)));
            world.leave(&[changed], false);
            let frame = flow.frame(to_client, &payload(1));
            assert_eq!(world.passed(hook, &frame), Some("altered"));
            // A rule may affect only some packets, so the next packet is not a proof yet.
            world.leave(std::slice::from_ref(&sent), false);
            sleep(SETTLED);
            assert_eq!(world.passed(hook, &frame), Some("altered"));
            world.leave(std::slice::from_ref(&sent), false);
        }
    });
}

/// A rule starts to change a direction that was relayed before.
#[test]
fn a_change_ends_the_proof_and_is_forgotten_after_some_seconds() {
    const FORGOTTEN: Duration = Duration::from_secs(20);
    for hook in HOOKS {
        inside(|| {
            let proof = Proof { holds: LONG, renew_every: Duration::from_millis(20) };
            let mut world = World::with(Duration::ZERO, proof, |_| {});
            world.may_overtake = true;
            let flow = four(&mut world)[0];
            enters(&mut world, hook, &flow.comes(false, &payload(1)));
            world.leave(&[flow.leaves(false, &payload(1))], false);
            sleep(SETTLED);
            let frame = flow.frame(false, &payload(2));
            world.relayed(hook, &frame);
            // Sends until a packet renews the proof.
            while world.judge(hook, &frame).verdict == Verdict::Redirect {
                sleep(Duration::from_millis(1));
            }
            let sent = flow.leaves(false, &payload(2));
            world.leave(&[Datagram { ttl: 3, ..sent.clone() }], false);
            assert_eq!(world.passed(hook, &frame), Some("altered"));
            let begun = Instant::now();
            while world.judge(hook, &frame).verdict == Verdict::Pass {
                assert!(begun.elapsed() < FORGOTTEN, "it is relayed again");
                world.leave(std::slice::from_ref(&sent), false);
                sleep(Duration::from_millis(10));
            }
        });
    }
}

#[test]
fn other_packets_are_no_evidence() {
    each(|world, hook, flow, to_client| {
        let frame = flow.frame(to_client, &payload(1));
        enters(world, hook, &flow.comes(to_client, &payload(1)));
        // A packet with another payload, a longer packet, and a shorter packet.
        let longer = [payload(1), vec![0]].concat();
        for other in [&payload(2), &longer, &payload(1)[..19]] {
            world.leave(&[flow.leaves(to_client, other)], false);
            assert_eq!(world.passed(hook, &frame), Some("unproven"));
        }
        let changed = Datagram { tos: 0xB8, ..flow.leaves(to_client, &payload(2)) };
        world.leave(&[changed], false);
        assert_eq!(world.passed(hook, &frame), Some("unproven"));
    });
}

/// The server joins datagrams to one destination.
#[test]
fn evidence_among_the_segments_of_one_packet() {
    each(|world, hook, flow, to_client| {
        // The last datagram may be shorter.
        let last = &payload(3)[..18];
        enters(world, hook, &flow.comes(to_client, last));
        let all = [&payload(1), &payload(2), last];
        let leaves = all.map(|payload| flow.leaves(to_client, payload));
        world.leave(&leaves, false);
        sleep(SETTLED);
        world.relayed(hook, &flow.frame(to_client, &payload(4)));
    });
}

/// The host selects the flow label, which is equal on both paths.
#[test]
fn the_flow_label_is_that_of_the_host() {
    each(|world, hook, flow, to_client| {
        let sent = Datagram { label: 0x5_1234, ..flow.leaves(to_client, &payload(1)) };
        if sent.is_v4() {
            return;
        }
        enters(world, hook, &flow.comes(to_client, &payload(1)));
        world.leave(&[sent], false);
        sleep(SETTLED);
        let frame = flow.frame(to_client, &payload(2));
        assert_eq!(world.relayed(hook, &frame)[14..18], [0x60, 0x05, 0x12, 0x34]);
        // The client binds the channel again.
        let Known { client, server, channel, peer, .. } = *flow;
        world.oracle.bind((client, server), channel, peer);
        world.tell();
        assert_eq!(world.relayed(hook, &frame)[14..18], [0x60, 0x05, 0x12, 0x34]);
    });
}
