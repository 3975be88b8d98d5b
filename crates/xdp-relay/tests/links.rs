//! Interfaces from which the programs accept packets.

use turn_types::{AllocationId, Instant, WorkerId};
use xdp_relay::device::Hook;
use xdp_relay::limits::LINKS_MAX;
use xdp_relay::{Flow, FlowId, KernelPath, Link, Options, Proof, Verdict};

use crate::support::frame::{Check, Datagram};
use crate::support::inside;
use crate::support::world::{COMES, LOOPBACK};

fn path() -> KernelPath {
    KernelPath::make(Options { flows: 1024, look_up_from: 1, proof: Proof::NOT_REQUIRED }).unwrap()
}

fn link(index: u32) -> Link {
    Link { index, mac: LOOPBACK, leave_xdp: true, leave_tc: true, partial_at_xdp: false }
}

#[test]
fn a_number_too_high_is_an_error() {
    inside(|| {
        let mut path = path();
        path.set_link(link(LINKS_MAX - 1)).unwrap();
        path.set_link(link(LINKS_MAX)).unwrap_err();
    });
}

#[test]
fn packets_of_an_unknown_interface_pass() {
    inside(unknown_interface);
}

fn unknown_interface() {
    // Destination address of zeros, which must not match an unknown interface.
    let mut path = path();
    let mut routes = path.routes(WorkerId(0)).unwrap();
    let (client, server) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:3478".parse().unwrap());
    let flow = Flow {
        client,
        server,
        channel: 0x4000,
        relayed: "198.51.100.1:9".parse().unwrap(),
        peer: "198.51.100.2:9".parse().unwrap(),
        hairpin: false,
        to_peer_until: Instant::FAR_FUTURE,
        to_client_until: Instant::FAR_FUTURE,
        bytes_per_second: 0,
    };
    let id = FlowId { allocation: AllocationId(1), channel: flow.channel };
    let now = linux_net::Clock::instant();
    routes.set(now, id, &flow).unwrap();
    routes.renew(now);
    let payload = b"\x40\x00\x00\x02hi".to_vec();
    let datagram = Datagram {
        from: client,
        to: server,
        ttl: 64,
        tos: 0,
        dont_fragment: true,
        id: 1,
        label: 0,
        payload,
    };
    let frame = datagram.frame(COMES, Check::Right);
    // With or without a next hop, the frame was processed as a frame for this host.
    let looked_at = |path: &KernelPath, verdict| {
        verdict == Verdict::Redirect || path.passed().iter().any(|(_, count)| *count > 0)
    };
    let ran = path.run(Hook::Xdp, &frame, 1).unwrap();
    assert_eq!((ran.verdict, &ran.frame), (Verdict::Pass, &frame));
    assert!(!looked_at(&path, ran.verdict));
    path.set_link(link(1)).unwrap();
    let ran = path.run(Hook::Xdp, &frame, 1).unwrap();
    assert!(looked_at(&path, ran.verdict), "{ran:?}");
}
