//! No packet overtakes earlier ones of its direction that are in the stack. The tests play the
//! stack and the server: a packet that passes is in the stack until they have it leave.
//! docs/adr/0017.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xdp_relay::device::Hook;
use xdp_relay::{FrameContext, Proof, Verdict};

use crate::support::frame::{Check, Datagram};
use crate::support::random::{Known, four};
use crate::support::world::{COMES, HOOKS};
use crate::support::{World, inside};

/// Longer than the lag of the programs' clock.
const SOON: Duration = Duration::from_millis(20);

/// Renewal is not due within a test.
const LONG: Duration = Duration::from_secs(600);

/// The programs wait for packets in the stack for 50 ms. A slower run shows nothing, and is
/// repeated.
const IN_TIME: Duration = Duration::from_millis(40);

/// Time within which packets leave the stack that entered before the first proof, and a pause.
const SETTLED: Duration = Duration::from_millis(6);

/// A pause after which no packet is under way any more.
const PAUSE: Duration = Duration::from_millis(1);

/// One direction of a flow, through one hook.
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

    /// True if a packet is relayed, and false if it passes to the stack.
    fn relays(&mut self) -> bool {
        let frame = self.frame();
        self.world.judge(self.hook, &frame).verdict == Verdict::Redirect
    }

    /// Number of packets that may have overtaken others.
    fn overtaken(&self) -> u64 {
        let passed = self.world.path.passed();
        passed.iter().find(|(name, _)| *name == "overtaken").unwrap().1
    }

    /// So many packets leave the stack.
    fn leave(&self, packets: usize) {
        for _ in 0..packets {
            self.world.leave(&[self.flow.leaves(self.to_client, b"data")], false);
        }
    }

    /// The client binds its channel again.
    fn refresh(&mut self) {
        let Known { client, server, channel, peer, .. } = self.flow;
        self.world.oracle.bind((client, server), channel, peer);
        self.world.tell();
    }

    /// The direction is relayed from here on.
    fn begin(&mut self) {
        assert!(!self.relays(), "there is no proof yet");
        self.leave(1);
        sleep(SETTLED);
        assert!(self.relays());
    }

    /// Sends packets until one is shown to the stack.
    fn show(&mut self) {
        let begun = Instant::now();
        while self.relays() {
            assert!(begun.elapsed() < Duration::from_secs(10), "none is shown");
            sleep(PAUSE);
        }
    }
}

/// Runs a part of a test in both directions of flows of all families, and again while the machine
/// is too slow for it.
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

/// `None` after too long a time.
fn in_time(begun: Instant) -> Option<()> {
    let in_time = begun.elapsed() < IN_TIME;
    if !in_time {
        // What it left behind is forgotten.
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
        // All but one leave, and a pause does not help.
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

/// Checks that two packets follow three merged ones, and the next packet is relayed.
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
        // As long as the kernel path waited once, whatever the stack did.
        sleep(Duration::from_millis(20));
        let follows = direction.relays();
        two_follow_three(direction, begun, follows)
    });
}

/// The limits of a sequence do not count from packets that the stack dropped.
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
    /// Datagrams of flows.
    fn frames(&self, flows: &[Known]) -> Vec<Datagram> {
        flows.iter().map(|flow| flow.comes(self.to_client, b"data")).collect()
    }
}

/// Datagrams come merged.
fn merged(direction: &Direction<'_>, datagrams: &[Datagram]) {
    let mut whole = datagrams[0].clone();
    let len = whole.payload.len() as u32;
    whole.payload = datagrams.iter().flat_map(|one| one.payload.clone()).collect();
    let frame = whole.frame(COMES, Check::Right);
    let comes = FrameContext::Merged(datagrams.len() as u32, len);
    let ran = direction.world.path.run_as(direction.hook, &frame, 1, comes).unwrap();
    assert_eq!((ran.verdict, ran.frame), (Verdict::Pass, frame));
}

/// A client's merged datagrams may be of several channels.
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

/// Packets are in the queue of the socket when their route is set.
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
                    // Four are in the queue, of which the first leaves, and two more enter the
                    // stack.
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

/// Packets that the stack drops hold the others for a bounded time. None is said to be overtaken
/// behind a pause, since there is none any more.
#[test]
fn a_dropped_packet_holds_others_for_a_moment() {
    each(&HOOKS, SOON, |direction| {
        direction.show();
        sleep(Duration::from_millis(60));
        assert!(direction.relays());
        Some(())
    });
}
