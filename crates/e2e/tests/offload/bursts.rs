//! Packets that the system could merge for the sockets.

use std::net::SocketAddr;

use e2e::Host;
use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpSocket};
use turn_types::{IpFamily, Marks};

use crate::scene::ON_ITS_WAY;
use crate::{Scene, wait_until};

/// Datagrams of a burst: a frame of video.
const BURST: u64 = 10;

/// Sends a burst by one call, so that its packets arrive together.
fn burst(from: &UdpSocket, to: SocketAddr) {
    let flow = Flow { socket: SendSocket(0), to, from: None, marks: Marks::DEFAULT };
    let mut burst = TxBatch::new();
    for tag in 0..BURST {
        let part = burst.arena_write(&[tag as u8; 1000]).expect("room");
        burst.push(flow, &[part], tag as u32).expect("room");
    }
    let rx = RxBatch::new(1);
    burst.flush(&rx, from, &mut SendStats::default(), |_, error| panic!("{error:?}"));
}

#[test]
fn bursts_of_peers_stay_with_the_program_at_tc() {
    let Some(scene) = Scene::new("tc", |_, _| ()) else { return };
    let peer = scene.lab.burst_socket(Host::Peer, (scene.lab.v4.peer, 0));
    let server = SocketAddr::new(scene.lab.v4.listen, 3478);
    let mut caller = scene.caller(scene.lab.v4.client, server, IpFamily::V4);
    caller.bind(peer.local_addr());
    let what = || {
        let status = &scene.server.json(&["status"])["offload"];
        format!("the kernel relays bursts: {:#} {status:#}", scene.session(&caller))
    };
    wait_until(what, || {
        let before = scene.by_kernel(&caller);
        burst(&peer, caller.relayed());
        let mut came: Vec<_> = (0..BURST).map_while(|_| caller.receive(ON_ITS_WAY)).collect();
        // One is shown to the sockets, now and then, and may come after the others.
        came.sort_unstable();
        let sent: Vec<_> = (0..BURST).map(|tag| vec![tag as u8; 1000]).collect();
        assert_eq!(came, sent, "all of a burst come");
        scene.by_kernel(&caller) >= before + BURST - 1
    });
}
