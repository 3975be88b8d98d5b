//! Packets that the stack could merge for the sockets, and packets that sockets send merged.

use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::time::Duration;

use e2e::{Caller, Host};
use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpSocket};
use stun_wire::ChannelNumber;
use turn_types::{IpFamily, IpMeta};

use super::rules::{has_nft, nft};
use super::scene::{ON_ITS_WAY, local};
use super::{Scene, by_xdp_and_tc, wait_until};

/// Datagrams of a burst: a frame of video.
const BURST: u64 = 10;

/// Sends a burst by one call, so that its packets arrive together.
fn burst(from: &UdpSocket, to: SocketAddr) {
    let flow = Flow { socket: SendSocket(0), to, from: None, meta: IpMeta::DEFAULT };
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

/// A direction of all its channels.
#[derive(Clone, Copy, Debug)]
enum To {
    Peers,
    Client,
}

/// A client with channels to two peers. Of the bursts of the server's sockets, only packets that
/// are to be segmented leave.
struct Crowd {
    scene: Scene,
    caller: Caller,
    peers: [(ChannelNumber, StdSocket); 2],
}

/// Wait for a datagram that may be lost.
const SOON: Duration = Duration::from_millis(300);

impl Crowd {
    fn new(mode: &str) -> Option<Self> {
        has_nft()?;
        let scene = Scene::new(mode, |lab, _| {
            let chain = "add chain inet cut out { type filter hook postrouting priority 0 ; }";
            // Bytes of a burst's datagrams behind the header of IP, to a peer and to a client.
            let rule = "add rule inet cut out udp length { 1008, 1012 } drop";
            nft(lab, &["add table inet cut", chain, rule]);
        })?;
        let server = SocketAddr::new(scene.lab.v4.listen, 3478);
        let mut caller = scene.caller(scene.lab.v4.client, server, IpFamily::V4);
        let peers = [(); 2].map(|()| {
            let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 0));
            peer.connect(caller.relayed()).expect("an address");
            peer.set_read_timeout(Some(SOON)).expect("a wait");
            (caller.bind(local(&peer)), peer)
        });
        Some(Self { scene, caller, peers })
    }

    /// Sends a burst by each channel, of both in turns towards the client.
    fn send(&self, to: To) {
        let payload = |tag: u64| [tag as u8; 1000];
        match to {
            To::Peers => self.peers.iter().for_each(|(channel, _)| {
                (0..BURST).for_each(|tag| self.caller.send(*channel, &payload(tag)));
            }),
            To::Client => (0..BURST).for_each(|tag| {
                self.peers.iter().for_each(|(_, peer)| drop(peer.send(&payload(tag))));
            }),
        }
    }

    /// Datagrams of these that arrive.
    fn receive(&self, to: To) -> u64 {
        let at_peer = |peer: &StdSocket| {
            let came = (0..BURST).take_while(|_| peer.recv(&mut [0; 1500]).is_ok());
            came.count() as u64
        };
        let at_client = || (0..2 * BURST).take_while(|_| self.caller.receive(SOON).is_some());
        match to {
            To::Peers => self.peers.iter().map(|(_, peer)| at_peer(peer)).sum(),
            To::Client => at_client().count() as u64,
        }
    }

    /// Sends a burst in a direction that waits at the server's sockets and leaves at once, and
    /// another after it, until the kernel relays that.
    #[track_caller]
    fn wait_for_kernel(&self, to: To) {
        let what = || {
            let status = &self.scene.server.json(&["status"])["offload"];
            format!("the kernel relays bursts to the {to:?}: {status:#}")
        };
        wait_until(what, || {
            self.scene.server.process.signal("STOP");
            self.send(to);
            self.scene.server.process.signal("CONT");
            self.receive(to);
            let before = self.scene.by_kernel(&self.caller);
            self.send(to);
            self.receive(to) == 2 * BURST
                && self.scene.by_kernel(&self.caller) >= before + 2 * BURST
        });
    }

    /// Packets that the session counts: to peers, and to the client.
    fn counted(&self) -> [u64; 2] {
        let session = self.scene.session(&self.caller);
        ["to_peers", "to_client"].map(|way| session[way]["packets"].as_u64().expect("packets"))
    }
}

/// The tap sees one packet for several datagrams, of several channels towards a client.
#[test]
fn bursts_that_sockets_send_prove_their_direction() {
    by_xdp_and_tc(|mode| {
        let Some(crowd) = Crowd::new(mode) else { return };
        crowd.wait_for_kernel(To::Peers);
        crowd.wait_for_kernel(To::Client);

        nft(&crowd.scene.lab, &["delete table inet cut"]);
        let before = crowd.counted();
        let mut arrived = [0; 2];
        for to in [To::Peers, To::Client] {
            for _ in 0..10 {
                crowd.send(to);
                arrived[to as usize] += crowd.receive(to);
            }
        }
        assert_eq!(arrived, [20 * BURST; 2], "{mode}");
        let counted = || {
            let now = crowd.counted();
            [now[0] - before[0], now[1] - before[1]]
        };
        let what = || format!("{mode}: {:?} counted of {arrived:?}", counted());
        wait_until(what, || counted() == arrived);
    });
}
