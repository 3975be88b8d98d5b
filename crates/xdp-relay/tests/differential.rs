//! The programs beside the rules that they stand for: whatever frame comes, either it leaves as
//! `turn-proto` would have it leave, byte for byte, or it is left to user space as it was.
#![allow(clippy::unwrap_used, reason = "panics are a test's verdict")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use netsim::{Rng, for_each_seed};
use support::random::{SPECIAL, make, populate};
use support::world::{HOOKS, hex, is_runnable};
use support::{World, inside};
use xdp_relay::Verdict;
use xdp_relay::device::Hook;

/// Frames of a seed, for each hook.
const FRAMES: usize = 5_000;

/// How long ago a world begins: what is to have run out by now lasted for a second.
const AGO: Duration = Duration::from_secs(3);

#[test]
fn what_leaves_is_what_the_rules_say_and_the_rest_is_left_alone() {
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
    // What was compared frame by frame is what the server counted.
    assert_eq!(world.oracle.relayed, without_drops(&world));
}

/// What the server counted for allocations that relayed something.
fn without_drops(world: &World) -> BTreeMap<turn_types::AllocationId, turn_proto::Traffic> {
    let mut counted = world.oracle.counted();
    for traffic in counted.values_mut() {
        traffic.dropped_packets = 0;
    }
    counted.retain(|_, traffic| *traffic != turn_proto::Traffic::default());
    counted
}
