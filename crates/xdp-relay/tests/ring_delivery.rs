//! Delivery of peers' datagrams to a worker's ring, for clients with a connection.

use std::time::Duration;

use turn_types::{AllocationId, Instant, WorkerId};
use xdp_relay::device::Hook;
use xdp_relay::limits::RING_BYTES;
use xdp_relay::{
    Flow, FlowCookie, FlowId, FrameContext, KernelPath, Link, Options, Proof, Routes, Verdict,
};

use crate::support::frame::{Check, Datagram};
use crate::support::inside;
use crate::support::world::{COMES, HOOKS, INBOUND};

const V4: [&str; 2] = ["198.51.100.2:9", "198.51.100.1:1009"];
const V6: [&str; 2] = ["[2001:db8:2::2]:9", "[2001:db8:2::1]:1009"];

/// Bytes of an entry of the largest size, with the kernel's header.
const LARGEST: u32 = 1504 + 16 + 8;

struct Hands {
    path: KernelPath,
    routes: Routes,
}

impl Hands {
    fn new(proof: Proof) -> Self {
        let options = Options { flows: 1024, look_up_from: 1, proof };
        let mut path = KernelPath::make(options).unwrap();
        path.set_link(Link { partial_at_xdp: false, ..INBOUND }).unwrap();
        let routes = path.routes(WorkerId(1)).unwrap();
        Self { path, routes }
    }

    /// Delivers the peer's datagrams to the relayed address to the ring.
    fn deliver_to_ring(&mut self, [peer, relayed]: [&str; 2]) -> FlowCookie {
        self.hand_until([peer, relayed], Instant::FAR_FUTURE)
    }

    fn hand_until(&mut self, ends: [&str; 2], until: Instant) -> FlowCookie {
        self.routes.renew(linux_net::Clock::instant());
        self.routes.deliver_to_ring(id(ends), &flow(ends, until)).unwrap().unwrap()
    }

    fn run(&self, hook: Hook, frame: &[u8]) -> Verdict {
        let ran = self.path.run(hook, frame, 1).unwrap();
        assert_eq!(ran.frame, frame, "what is handed over or passes is as it was");
        ran.verdict
    }

    /// Returns the counter that rises when a frame passes.
    fn passes(&self, hook: Hook, frame: &[u8], comes: FrameContext) -> Option<&'static str> {
        let before = self.path.passed();
        let ran = self.path.run_as(hook, frame, 1, comes).unwrap();
        assert_eq!(ran.verdict, Verdict::Pass);
        let after = self.path.passed();
        let rose = before.iter().zip(&after).find(|(before, after)| before.1 < after.1);
        rose.map(|(_, (name, _))| *name)
    }
}

fn id([peer, _]: [&str; 2]) -> FlowId {
    FlowId { allocation: AllocationId(if peer == V4[0] { 1 } else { 2 }), channel: 0x4000 }
}

fn flow([peer, relayed]: [&str; 2], until: Instant) -> Flow {
    Flow {
        client: "192.0.2.1:9".parse().unwrap(),
        server: "192.0.2.2:3478".parse().unwrap(),
        channel: 0x4000,
        relayed: relayed.parse().unwrap(),
        peer: peer.parse().unwrap(),
        hairpin: false,
        to_peer_until: until,
        to_client_until: until,
        bytes_per_second: 0,
    }
}

fn datagram([peer, relayed]: [&str; 2], payload: &[u8]) -> Datagram {
    Datagram {
        from: peer.parse().unwrap(),
        to: relayed.parse().unwrap(),
        ttl: 33,
        tos: 0xB8,
        dont_fragment: true,
        id: 1,
        label: 0,
        payload: payload.to_vec(),
    }
}

fn frame(ends: [&str; 2], payload: &[u8]) -> Vec<u8> {
    datagram(ends, payload).frame(COMES, Check::Right)
}

fn by_each_hook(run: fn(Hook)) {
    for hook in HOOKS {
        eprintln!("by {hook}");
        inside(|| run(hook));
    }
}

#[test]
fn a_worker_gets_them_as_they_came() {
    by_each_hook(|hook| {
        let mut hands = Hands::new(Proof::NOT_REQUIRED);
        let flow_cookies = [V4, V6].map(|ends| (ends, hands.deliver_to_ring(ends)));
        // One byte, the bounds of the reserved sizes, and the length of a link.
        let lengths = [1, 2, 3, 255, 256, 257, 768, 769, 1452];
        for len in lengths {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            for (ends, flow_cookie) in flow_cookies {
                assert_eq!(hands.run(hook, &frame(ends, &payload)), Verdict::Drop, "{len}");
                let [peer, relayed] = ends.map(|end| end.parse().unwrap());
                let handed = hands.routes.ring().unwrap().next().unwrap();
                assert_eq!((handed.flow_cookie(), handed.payload()), (flow_cookie, &payload[..]));
                assert_eq!((handed.meta().ttl, handed.meta().tos), (33, 0xB8));
                assert!(handed.is_intact(peer, relayed), "{len} bytes of {peer}");
                assert!(!handed.is_intact(peer, peer), "{len} bytes of {peer}");
            }
        }
        assert!(hands.routes.ring().unwrap().next().is_none());
        assert!(hands.path.passed().iter().all(|(_, count)| *count == 0));
    });
}

#[test]
fn damaged_datagrams_are_detected_and_ones_without_checksum_accepted() {
    by_each_hook(|hook| {
        let mut hands = Hands::new(Proof::NOT_REQUIRED);
        hands.deliver_to_ring(V4);
        let [peer, relayed] = V4.map(|end| end.parse().unwrap());
        let right = frame(V4, b"a few bytes");
        for at in (42..right.len()).chain([40]) {
            let mut damaged = right.clone();
            damaged[at] ^= 0x10;
            assert_eq!(hands.run(hook, &damaged), Verdict::Drop);
            let handed = hands.routes.ring().unwrap().next().unwrap();
            assert!(!handed.is_intact(peer, relayed), "at {at}");
        }
        let without = datagram(V4, b"a few bytes").frame(COMES, Check::Zero);
        assert_eq!(hands.run(hook, &without), Verdict::Drop);
        assert!(hands.routes.ring().unwrap().next().unwrap().is_intact(peer, relayed));
    });
}

#[test]
fn others_are_left_to_the_sockets() {
    by_each_hook(|hook| {
        let mut hands = Hands::new(Proof::NOT_REQUIRED);
        let flow_cookie = hands.deliver_to_ring(V4);
        let [peer, relayed] = V4;
        for ends in [["198.51.100.3:9", relayed], [&V4[0].replace(":9", ":10"), relayed], V6] {
            assert_eq!(
                hands.passes(hook, &frame(ends, b"x"), FrameContext::Alone),
                None,
                "{ends:?}"
            );
        }
        assert_eq!(
            hands.passes(hook, &frame([peer, relayed], b""), FrameContext::Alone),
            Some("too_long")
        );
        assert_eq!(hands.routes.withdraw_from_ring(id(V4)), Some(flow_cookie));
        assert_eq!(hands.passes(hook, &frame(V4, b"x"), FrameContext::Alone), None);
        let next = hands.deliver_to_ring(V4);
        assert_ne!(next, flow_cookie, "what still waits is not the next one's");
        // The channel is bound to another peer.
        let elsewhere = ["198.51.100.9:9", V4[1]];
        let other = flow(elsewhere, Instant::FAR_FUTURE);
        let moved = hands.routes.deliver_to_ring(id(V4), &other).unwrap().unwrap();
        assert_ne!(moved, next);
        assert_eq!(hands.routes.flow_cookie(id(V4)), Some(moved));
        assert_eq!(
            hands.passes(hook, &frame(V4, b"x"), FrameContext::Alone),
            None,
            "the one before"
        );
        assert!(hands.routes.ring().unwrap().next().is_none());
    });
}

#[test]
fn reasons_for_passing_are_counted() {
    by_each_hook(|hook| {
        let mut hands = Hands::new(Proof::NOT_REQUIRED);
        let now = linux_net::Clock::instant();
        hands.hand_until(V4, Instant::from_nanos(now.as_nanos() - 1_000_000_000));
        let right = frame(V4, b"x");
        assert_eq!(
            hands.passes(hook, &right, FrameContext::Alone),
            Some("expired"),
            "the permission"
        );
        hands.deliver_to_ring(V4);
        hands.routes.renew(Instant::from_nanos(now.as_nanos() - 10_000_000_000));
        assert_eq!(hands.passes(hook, &right, FrameContext::Alone), Some("expired"), "the worker");
        hands.routes.renew(now);
        hands.deliver_to_ring(V6);
        let unmade = datagram(V4, b"x").frame(COMES, Check::Pseudo);
        if hook == Hook::Tc {
            // The kernel treats the checksum as complete, which is equal to a partial checksum by
            // chance. The checksum is invalid.
            assert_eq!(hands.run(hook, &unmade), Verdict::Drop);
            let [peer, relayed] = V4.map(|end| end.parse().unwrap());
            assert!(!hands.routes.ring().unwrap().next().unwrap().is_intact(peer, relayed));
        } else {
            assert_eq!(hands.passes(hook, &unmade, FrameContext::Alone), Some("checksum"));
        }
        let none = datagram(V6, b"x").frame(COMES, Check::Zero);
        assert_eq!(hands.passes(hook, &none, FrameContext::Alone), Some("checksum"));
        if hook == Hook::Tc {
            assert_eq!(hands.passes(hook, &right, FrameContext::Merged(2, 1)), Some("merged"));
            assert_eq!(
                hands.passes(hook, &right, FrameContext::Alone),
                Some("merged"),
                "right behind"
            );
        }
        let long = Duration::from_secs(600);
        for (renew_every, why) in [(long, None), (Duration::from_millis(5), Some("proof_renewal"))]
        {
            let mut hands = Hands::new(Proof { holds: long, renew_every });
            hands.deliver_to_ring(V4);
            assert_eq!(
                hands.passes(hook, &right, FrameContext::Alone),
                Some("unproven"),
                "the first"
            );
            assert_eq!(
                hands.passes(hook, &right, FrameContext::Alone),
                Some("unproven"),
                "those behind"
            );
            hands.routes.prove(id(V4), 2);
            // Punted datagrams must be read from the sockets first.
            std::thread::sleep(Duration::from_millis(6));
            assert_eq!(hands.run(hook, &right), Verdict::Drop);
            if why.is_some() {
                std::thread::sleep(Duration::from_millis(20));
                // First datagram after the pause, which started when renewal was due.
                assert_eq!(hands.run(hook, &right), Verdict::Drop);
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(hands.passes(hook, &right, FrameContext::Alone), why);
                // Others follow it until all have reached the worker.
                assert_eq!(hands.passes(hook, &right, FrameContext::Alone), why);
                hands.routes.prove(id(V4), 1);
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(hands.passes(hook, &right, FrameContext::Alone), why);
                hands.routes.prove(id(V4), 2);
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(hands.run(hook, &right), Verdict::Drop);
            }
        }
    });
}

#[test]
fn a_ring_is_bounded_and_has_room_again() {
    by_each_hook(|hook| {
        let mut hands = Hands::new(Proof::NOT_REQUIRED);
        hands.deliver_to_ring(V4);
        let large = frame(V4, &[7; 1400]);
        let most = RING_BYTES / LARGEST;
        let ran = hands.path.run(hook, &large, 2 * most).unwrap();
        assert_eq!(ran.verdict, Verdict::Pass, "the last of them");
        assert_eq!(hands.passes(hook, &large, FrameContext::Alone), Some("ring"));
        let ring = hands.routes.ring().unwrap();
        let taken = std::iter::from_fn(|| ring.next().map(drop)).count();
        assert!((most - 1..=most + 1).contains(&(taken as u32)), "{taken} of {most}");
        assert_eq!(hands.run(hook, &large), Verdict::Drop, "there is room again");
    });
}
