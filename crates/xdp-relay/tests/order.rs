//! No packet overtakes earlier packets of its direction that are in the stack. The tests play the
//! stack and the server. A packet that passes is in the stack until the tests make it leave.
//! docs/adr/0017.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xdp_relay::device::Hook;
use xdp_relay::{FrameContext, Proof, Verdict};

use crate::support::frame::{Check, Datagram};
use crate::support::random::{Known, four};
use crate::support::world::{COMES, HOOKS};
use crate::support::{World, inside};

/// Time that exceeds the lag of the programs' clock.
const SOON: Duration = Duration::from_millis(20);

/// Time that exceeds each test, so renewal does not become due.
const LONG: Duration = Duration::from_secs(600);

/// Maximum duration of a valid run. The programs wait 50 ms for packets in the stack. A slower run
/// shows nothing, and is repeated.
const IN_TIME: Duration = Duration::from_millis(40);

/// Time within which packets leave that entered the stack before the first proof, and a pause.
const SETTLED: Duration = Duration::from_millis(6);

/// Pause after which no packet is in transit.
const PAUSE: Duration = Duration::from_millis(1);

/// Direction of a flow, at one hook.
struct Direction<'a> {
    world: &'a mut World,
    hook: Hook,
    flow: Known,
    to_client: bool,
}

impl Direction<'_> {
    fn frame(&self) -> Vec<u8> {
        self.flow.frame(self.to_client, b"data")
    }

    /// Returns true if a packet is relayed, and false if the packet passes to the stack.
    fn relays(&mut self) -> bool {
        let frame = self.frame();
        self.world.judge(self.hook, &frame).verdict == Verdict::Redirect
    }

    /// Returns the number of packets that may have overtaken others.
    fn overtaken(&self) -> u64 {
        let passed = self.world.path.passed();
        passed.iter().find(|(name, _)| *name == "overtaken").unwrap().1
    }

    /// Makes `packets` packets leave the stack.
    fn leave(&self, packets: usize) {
        for _ in 0..packets {
            self.world.leave(&[self.flow.leaves(self.to_client, b"data")], false);
        }
    }

    /// Lets the client bind its channel again.
    fn refresh(&mut self) {
        let Known { client, server, channel, peer, .. } = self.flow;
        self.world.oracle.bind((client, server), channel, peer);
        self.world.tell();
    }

    /// Proves the direction, so packets are relayed from now on.
    fn begin(&mut self) {
        assert!(!self.relays(), "there is no proof yet");
        self.leave(1);
        sleep(SETTLED);
        assert!(self.relays());
    }

    /// Sends packets until one is punted to the stack.
    fn show(&mut self) {
        let begun = Instant::now();
        while self.relays() {
            assert!(begun.elapsed() < Duration::from_secs(10), "none is shown");
            sleep(PAUSE);
        }
    }
}

/// Runs a part of a test in both directions of flows of all families. A part is repeated if the
/// machine was too slow.
fn each(hooks: &[Hook], renew_every: Duration, part: fn(&mut Direction<'_>) -> Option<()>) {
    for hook in hooks {
        inside(|| {
            let proof = Proof { holds: LONG, renew_every };
            let mut world = World::with(Duration::ZERO, proof, |_| {});
            world.may_overtake = true;
            for flow in four(&mut world) {
                for to_client in [false, true] {
                    let world = &mut world;
                    let mut direction = Direction { world, hook: *hook, flow, to_client };
                    direction.begin();
                    let ran = (0..20).any(|_| {
                        let before = direction.overtaken();
                        let in_time = part(&mut direction).is_some();
                        assert!(!in_time || direction.overtaken() == before, "overtaken");
                        in_time
                    });
                    assert!(ran, "this machine is too slow");
                }
            }
        });
    }
}

/// Returns `None` if the run took too long.
fn in_time(begun: Instant) -> Option<()> {
    let in_time = begun.elapsed() < IN_TIME;
    if !in_time {
        // After this pause the state of the run has expired.
        sleep(Duration::from_millis(300));
    }
    in_time.then_some(())
}

#[test]
fn packets_follow_one_that_was_shown() {
    each(&HOOKS, SOON, |direction| {
        direction.show();
        let begun = Instant::now();
        let others = [(); 5].map(|()| direction.relays());
        // All packets except one leave, and a pause does not help.
        direction.leave(5);
        sleep(PAUSE);
        let late = direction.relays();
        in_time(begun)?;
        assert_eq!((others, late), ([false; 5], false));
        direction.leave(2);
        sleep(PAUSE);
        assert!(direction.relays(), "the stack has none of them");
        Some(())
    });
}

#[test]
fn segments_of_one_packet_count_each() {
    each(&HOOKS, SOON, |direction| {
        direction.show();
        let begun = Instant::now();
        let others = [(); 3].map(|()| direction.relays());
        let left = direction.flow.leaves(direction.to_client, b"data");
        direction.world.leave(&[left.clone(), left.clone(), left], false);
        sleep(PAUSE);
        let late = direction.relays();
        in_time(begun)?;
        assert_eq!((others, late), ([false; 3], false));
        direction.leave(2);
        sleep(PAUSE);
        assert!(direction.relays());
        Some(())
    });
}

/// Checks that two packets follow three merged packets, and the next packet is relayed.
fn two_follow_three(direction: &mut Direction<'_>, begun: Instant, follows: bool) -> Option<()> {
    direction.leave(3);
    sleep(PAUSE);
    let last = direction.relays();
    in_time(begun)?;
    assert_eq!((follows, last), (false, false));
    direction.leave(2);
    sleep(PAUSE);
    assert!(direction.relays());
    Some(())
}

#[test]
fn packets_follow_merged_ones_however_long_they_take() {
    each(&[Hook::Tc], LONG, |direction| {
        let begun = Instant::now();
        merged(direction, &direction.frames(&[direction.flow; 3]));
        // Time does not permit overtaking while merged packets are in the stack.
        sleep(Duration::from_millis(20));
        let follows = direction.relays();
        two_follow_three(direction, begun, follows)
    });
}

/// Packets that the stack dropped do not count towards the limits of a sequence.
#[test]
fn packets_follow_merged_ones_behind_dropped_ones() {
    each(&[Hook::Tc], LONG, |direction| {
        merged(direction, &direction.frames(&[direction.flow; 3]));
        direction.leave(1);
        sleep(Duration::from_millis(60));
        let begun = Instant::now();
        merged(direction, &direction.frames(&[direction.flow; 3]));
        sleep(PAUSE);
        let follows = direction.relays();
        two_follow_three(direction, begun, follows)
    });
}

impl Direction<'_> {
    /// Builds a datagram for each flow.
    fn frames(&self, flows: &[Known]) -> Vec<Datagram> {
        flows.iter().map(|flow| flow.comes(self.to_client, b"data")).collect()
    }
}

/// Sends datagrams that arrive merged.
fn merged(direction: &Direction<'_>, datagrams: &[Datagram]) {
    let mut whole = datagrams[0].clone();
    let len = whole.payload.len() as u32;
    whole.payload = datagrams.iter().flat_map(|one| one.payload.clone()).collect();
    let frame = whole.frame(COMES, Check::Right);
    let comes = FrameContext::Merged(datagrams.len() as u32, len);
    let ran = direction.world.path.run_as(direction.hook, &frame, 1, comes).unwrap();
    assert_eq!((ran.verdict, ran.frame), (Verdict::Pass, frame));
}

/// A client's merged datagrams may belong to several channels.
#[test]
fn packets_of_each_channel_follow_merged_ones() {
    inside(|| {
        let proof = Proof { holds: LONG, renew_every: LONG };
        let mut world = World::with(Duration::ZERO, proof, |_| {});
        let [first, other] = four(&mut world)[..2] else { panic!("two of one client") };
        for flow in [first, other] {
            let world = &mut world;
            Direction { world, hook: Hook::Tc, flow, to_client: false }.begin();
        }
        let ran = (0..20).any(|_| {
            let begun = Instant::now();
            let world = &mut world;
            let mut direction = Direction { world, hook: Hook::Tc, flow: first, to_client: false };
            merged(&direction, &direction.frames(&[first, other, other, first]));
            let follows = [first, other].map(|flow| {
                direction.flow = flow;
                direction.relays()
            });
            let too_early = [first, other].map(|flow| {
                direction.flow = flow;
                direction.leave(2);
                sleep(PAUSE);
                direction.relays()
            });
            if in_time(begun).is_none() {
                return false;
            }
            assert_eq!((follows, too_early), ([false; 2], [false; 2]));
            for flow in [first, other] {
                direction.flow = flow;
                direction.leave(2);
                sleep(PAUSE);
                assert!(direction.relays());
            }
            true
        });
        assert!(ran, "this machine is too slow");
    });
}

/// Packets are already in the socket's queue when their route is set.
#[test]
fn packets_follow_those_from_before_the_route() {
    for hook in HOOKS {
        inside(|| {
            let mut judged = 0;
            let proof = Proof { holds: LONG, renew_every: LONG };
            let mut world = World::with(Duration::ZERO, proof, |_| {});
            for flow in four(&mut world) {
                for to_client in [false, true] {
                    let world = &mut world;
                    let mut direction = Direction { world, hook, flow, to_client };
                    // The queue has four packets. The first leaves, and two more enter the stack.
                    let begun = Instant::now();
                    direction.leave(1);
                    sleep(PAUSE);
                    let follow = [(); 2].map(|()| direction.relays());
                    direction.leave(2);
                    let late = direction.relays();
                    let in_time = begun.elapsed() < Duration::from_millis(4);
                    assert!(!in_time || (follow, late) == ([false; 2], false), "{follow:?} {late}");
                    judged += u32::from(in_time);
                    direction.leave(4);
                    sleep(SETTLED);
                    assert!(direction.relays());
                }
            }
            assert!(judged > 0, "this machine is too slow");
        });
    }
}

#[test]
fn a_refresh_of_the_route_forgets_no_packet() {
    each(&HOOKS, SOON, |direction| {
        direction.show();
        let begun = Instant::now();
        direction.refresh();
        sleep(PAUSE);
        let follows = direction.relays();
        direction.leave(1);
        sleep(PAUSE);
        direction.refresh();
        let late = direction.relays();
        in_time(begun)?;
        assert_eq!((follows, late), (false, false));
        direction.leave(2);
        sleep(PAUSE);
        assert!(direction.relays());
        Some(())
    });
}

/// Packets that the stack drops delay others for a bounded time. After a pause no packet is
/// reported as overtaken, since no packet remains in the stack.
#[test]
fn a_dropped_packet_holds_others_for_a_moment() {
    each(&HOOKS, SOON, |direction| {
        direction.show();
        sleep(Duration::from_millis(60));
        assert!(direction.relays());
        Some(())
    });
}
