//! Hosts on one machine, in separate network namespaces, with plain UDP sockets: a client, this
//! host, a peer.
//!
//! ```text
//! client --- clients0 [this host] peers0 --- peer
//! ```
//!
//! No server runs here. A packet that the programs pass is lost.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use linux_net::{RxBatch, SendSocket, SendStats, TxBatch, UdpOptions};
use turn_types::{AllocationId, Instant, IpMeta, WorkerId};
use xdp_relay::device::{Hook, devices};
use xdp_relay::{Flow, FlowCounters, FlowId, KernelPath, Link, Options, Proof, Routes};

use crate::support::network::ip;

/// Maximum transit time of a datagram that arrives.
const PATIENCE: Duration = Duration::from_secs(5);

const CHANNEL: u16 = 0x4001;

/// Returns an address on a link, in either family: `[10.9.LINK.HOST, fd09:LINK::HOST]`.
fn address(link: u8, host: u8, v6: bool, port: u16) -> SocketAddr {
    let text = if v6 { format!("[fd09:{link}::{host}]") } else { format!("10.9.{link}.{host}") };
    format!("{text}:{port}").parse().unwrap()
}

/// Host next to this host.
struct Neighbour(File);

impl Neighbour {
    /// Creates the host, on a separate link.
    fn new(link: u8, here: &str) -> Self {
        let namespace = lab_net::new_network_namespace().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        let macs = [1, 2].map(|host| format!("02:c0:00:00:0{link}:0{host}"));
        let neighbour = Self(namespace);
        ip(&format!(
            "link add {here} address {} type veth peer name there address {}
            link set there netns {path}",
            macs[0], macs[1]
        ));
        let up = |device: &str, own: u8| {
            let (other, mac) = (3 - own, &macs[usize::from(2 - own)]);
            ip(&format!(
                "link set lo up
                link set {device} up
                address add 10.9.{link}.{own}/24 dev {device}
                address add fd09:{link}::{own}/64 dev {device} nodad
                neigh add 10.9.{link}.{other} lladdr {mac} nud permanent dev {device}
                neigh add fd09:{link}::{other} lladdr {mac} nud permanent dev {device}"
            ));
        };
        up(here, 1);
        neighbour.inside(|| up("there", 2));
        neighbour
    }

    fn inside<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                lab_net::enter_network_namespace(&self.0).unwrap();
                action()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn socket(&self, at: SocketAddr) -> UdpSocket {
        let socket = self.inside(|| UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

/// Runs `ethtool -K` in the namespace of the calling thread.
fn features(device: &str, features: &str) {
    let arguments = ["-K", device].into_iter().chain(features.split_whitespace());
    let output = Command::new("ethtool").args(arguments).output().unwrap();
    assert!(output.status.success(), "{device} {features}: {output:?}");
}

/// Network with the programs of a hook on both links of this host.
pub(crate) struct Hosts {
    client: Neighbour,
    peer: Neighbour,
    pub(crate) path: KernelPath,
    routes: Routes,
    flows: u64,
}

impl Hosts {
    pub(crate) fn new(hook: Hook) -> Self {
        for family in ["ipv4", "ipv6"] {
            // Enables look-ups of next hops.
            std::fs::write(format!("/proc/sys/net/{family}/conf/lo/forwarding"), "1").unwrap();
        }
        let (client, peer) = (Neighbour::new(1, "clients0"), Neighbour::new(2, "peers0"));
        if hook == Hook::Xdp {
            // A veth accepts frames of XDP only if the other end accepts complete frames.
            for host in [&client, &peer] {
                host.inside(|| features("there", "gro on"));
            }
        }
        let options = Options { flows: 1024, look_up_from: 1, proof: Proof::NOT_REQUIRED };
        let mut path = KernelPath::make(options).unwrap();
        for device in devices().unwrap() {
            let is_link = ["clients0", "peers0"].contains(&device.name.as_str());
            if is_link {
                path.attach(&device.name, device.index, hook).unwrap();
            }
            path.set_link(Link {
                index: device.index,
                mac: device.mac,
                leave_xdp: is_link,
                leave_tc: is_link,
                partial_at_xdp: hook == Hook::Xdp && device.veth,
            })
            .unwrap();
        }
        let routes = path.routes(WorkerId(0)).unwrap();
        Self { client, peer, path, routes, flows: 0 }
    }

    /// Sets features of the client's end, the peer's end or, on both links, this host's ends.
    pub(crate) fn features(&self, end: End, of_it: &str) {
        match end {
            End::Client => self.client.inside(|| features("there", of_it)),
            End::Peer => self.peer.inside(|| features("there", of_it)),
            End::Here => ["clients0", "peers0"].into_iter().for_each(|link| features(link, of_it)),
        }
    }

    /// Creates a call with the families of the client and of the peer.
    pub(crate) fn call(&mut self, client_v6: bool, peer_v6: bool) -> Call {
        let (id, flow) = self.flow(client_v6, peer_v6);
        self.set(id, &flow);
        Call { client: self.client.socket(flow.client), peer: self.peer.socket(flow.peer), flow }
    }

    fn set(&mut self, id: FlowId, flow: &Flow) {
        self.routes.set(linux_net::Clock::instant(), id, flow).unwrap();
        self.renew();
    }

    fn flow(&mut self, client_v6: bool, peer_v6: bool) -> (FlowId, Flow) {
        self.flows += 1;
        let port = 10_000 + 10 * self.flows as u16;
        let flow = Flow {
            client: address(1, 2, client_v6, port),
            server: address(1, 1, client_v6, 3478),
            channel: CHANNEL,
            relayed: address(2, 1, peer_v6, port + 1),
            peer: address(2, 2, peer_v6, port + 2),
            hairpin: false,
            to_peer_until: Instant::FAR_FUTURE,
            to_client_until: Instant::FAR_FUTURE,
            bytes_per_second: 0,
        };
        (FlowId { allocation: AllocationId(self.flows), channel: CHANNEL }, flow)
    }

    /// Creates two clients, on the link of clients and on that of peers. Each is the other's peer
    /// by the relayed addresses. Data sent by one client arrives at the other as ChannelData, from
    /// the returned address.
    pub(crate) fn two_clients(&mut self, v6: bool) -> (Call, SocketAddr) {
        let (id, one) = self.flow(v6, v6);
        let (other_id, _) = self.flow(v6, v6);
        let one = Flow { peer: SocketAddr::new(one.relayed.ip(), one.relayed.port() + 5), ..one };
        let other = Flow {
            client: address(2, 2, v6, 9),
            server: address(2, 1, v6, 3478),
            relayed: one.peer,
            peer: one.relayed,
            ..one
        };
        for (id, flow) in [(id, one), (other_id, other)] {
            self.set(id, &Flow { hairpin: true, ..flow });
        }
        let (client, peer) = (self.client.socket(one.client), self.peer.socket(other.client));
        (Call { client, peer, flow: one }, other.server)
    }

    /// Creates a peer whose datagrams are delivered to the ring.
    pub(crate) fn peer_of_a_connection(&mut self, v6: bool) -> (UdpSocket, Flow) {
        let (id, flow) = self.flow(v6, v6);
        self.routes.deliver_to_ring(id, &flow).unwrap().unwrap();
        self.renew();
        (self.peer.socket(flow.peer), flow)
    }

    /// Returns the next datagram of a flow in the ring: the payload, if the datagram is intact.
    pub(crate) fn delivered(&mut self, flow: &Flow) -> Option<Option<Vec<u8>>> {
        let datagram = self.routes.ring()?.next()?;
        Some(datagram.is_intact(flow.peer, flow.relayed).then(|| datagram.payload().to_vec()))
    }

    /// Keeps the routes valid.
    pub(crate) fn renew(&self) {
        self.routes.renew(linux_net::Clock::instant());
    }

    /// Sends numbered datagrams of 160 bytes to the client of a call, with one system call. Returns
    /// the client.
    pub(crate) fn burst_to_client(&self, call: Call, datagrams: u8) -> UdpSocket {
        let Call { client, peer, flow } = call;
        drop(peer);
        let options = UdpOptions::default();
        let bind = || linux_net::UdpSocket::bind(flow.peer, &options).unwrap().0;
        let peer = self.peer.inside(bind);
        let to_client = linux_net::Flow {
            socket: SendSocket(0),
            to: flow.relayed,
            from: None,
            meta: IpMeta::DEFAULT,
        };
        let mut burst = TxBatch::new();
        for number in 0..datagrams {
            let payload = burst.arena_write(&[number; 160]).unwrap();
            burst.push(to_client, &[payload], u32::from(number)).unwrap();
        }
        let rx = RxBatch::new(1);
        burst.flush(&rx, &peer, &mut SendStats::default(), |_, error| panic!("{error:?}"));
        client
    }

    /// Returns the packets that the kernel counted since the last call: to peers, to clients.
    pub(crate) fn counted(&mut self) -> [u64; 2] {
        let mut sum = [0; 2];
        self.routes.sweep(linux_net::Clock::instant(), usize::MAX, |_, counters| {
            let FlowCounters { to_peer_packets, to_client_packets, .. } = counters;
            sum = [sum[0] + to_peer_packets, sum[1] + to_client_packets];
        });
        sum
    }

    /// Returns the number of packets passed for a reason.
    pub(crate) fn passed(&self, reason: &str) -> u64 {
        self.path.passed().into_iter().find(|(name, _)| *name == reason).unwrap().1
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Client,
    Peer,
    Here,
}

/// Client and peer, on a channel.
pub(crate) struct Call {
    pub(crate) client: UdpSocket,
    pub(crate) peer: UdpSocket,
    pub(crate) flow: Flow,
}

impl Call {
    /// Returns the maximum payload that fits in a packet of 1,500 bytes, with ChannelData.
    pub(crate) const fn longest(&self) -> usize {
        let headers = if self.flow.client.is_ipv6() || self.flow.peer.is_ipv6() { 48 } else { 28 };
        1500 - headers - 4
    }

    pub(crate) fn framed(payload: &[u8]) -> Vec<u8> {
        let header = [CHANNEL.to_be_bytes(), (payload.len() as u16).to_be_bytes()].concat();
        [header, payload.to_vec()].concat()
    }

    /// Sends a payload to the peer, which must receive it from the relayed address.
    #[track_caller]
    pub(crate) fn to_peer(&self, payload: &[u8]) {
        self.client.send_to(&Self::framed(payload), self.flow.server).unwrap();
        received(&self.peer, self.flow.relayed, payload);
    }

    /// Sends a payload to the client, which must receive it as ChannelData from the server.
    #[track_caller]
    pub(crate) fn to_client(&self, payload: &[u8]) {
        self.peer.send_to(payload, self.flow.relayed).unwrap();
        received(&self.client, self.flow.server, &Self::framed(payload));
    }
}

#[track_caller]
pub(crate) fn received(socket: &UdpSocket, from: SocketAddr, datagram: &[u8]) {
    let mut bytes = [0; 2048];
    let (len, sender) = socket.recv_from(&mut bytes).unwrap_or_else(|error| {
        panic!("{} bytes from {from}: {error}", datagram.len());
    });
    assert_eq!(sender, from);
    assert!(
        bytes[..len] == *datagram,
        "{} bytes came as {len}: {:?}",
        datagram.len(),
        &bytes[..len]
    );
}
