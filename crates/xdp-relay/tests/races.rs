//! Routes that are installed, withdrawn and refreshed while the programs relay. A packet of one
//! client never gets another client's addresses, counts or flow cookie.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use netsim::Rng;
use turn_types::{AllocationId, Instant, WorkerId};
use xdp_relay::device::Hook;
use xdp_relay::{
    Flow, FlowCookie, FlowCounters, FlowId, KernelPath, KernelPathError, Link, Options, Proof,
    Routes, Verdict,
};

use crate::support::frame::{Check, Datagram, read};
use crate::support::inside;
use crate::support::network::ip;
use crate::support::world::{COMES, HOOKS, INBOUND, outbound};

/// Number of frames of the first client for each hook, most of them relayed many times within one
/// run.
const FRAMES: u64 = 5_000_000;
/// Number of runs in which each frame is examined.
const SINGLE_RUNS: u64 = 10_000;
/// Minimum number of changes of ring routes.
const CHANGES: u32 = 100_000;
/// Minimum number of datagrams delivered to the ring. If the sender got little processor time, the
/// routes change until this number is reached.
const HANDED: u32 = 1_000;
/// Number of passes of a frame in one run. Each pass costs a hop.
const REPEAT: u32 = 200;
const CHANNEL: u16 = 0x4000;
/// Difference of a client's port after a move.
const MOVED: u16 = 1000;
const HOPS: u8 = 255;
const PAYLOAD: [u8; 32] = [0xA5; 32];

/// Addresses of two clients. Packets that leave by a flow arrive by that flow again: the client is
/// the relayed address, and the server's address is the peer. A frame that is processed repeatedly
/// therefore stays in its flow, unless it gets an address of the other flow.
const ENDS: [[&str; 2]; 2] =
    [["198.18.1.2:10000", "198.18.2.2:3478"], ["198.18.1.3:10001", "198.18.2.3:3479"]];

fn ends(client: usize) -> [SocketAddr; 2] {
    ENDS[client].map(|end| end.parse().unwrap())
}

fn id(client: usize) -> FlowId {
    FlowId { allocation: AllocationId(client as u64 + 1), channel: CHANNEL }
}

/// Builds a client's flow. With `moved` the client has another address, as after a mobility
/// Refresh.
fn flow(client: usize, until: Instant, moved: bool) -> Flow {
    let [x, y] = ends(client);
    let elsewhere = SocketAddr::new(x.ip(), x.port() + MOVED);
    Flow {
        client: if moved { elsewhere } else { x },
        server: y,
        channel: CHANNEL,
        relayed: x,
        peer: y,
        hairpin: false,
        to_peer_until: until,
        to_client_until: until,
        bytes_per_second: 0,
    }
}

/// Creates a kernel path on two links whose neighbours have the loopback's address, so outbound
/// frames can be processed again.
fn path() -> KernelPath {
    for family in ["ipv4", "ipv6"] {
        std::fs::write(format!("/proc/sys/net/{family}/conf/lo/forwarding"), "1").unwrap();
    }
    let mut commands = vec!["link set lo up".to_owned()];
    for side in [1, 2] {
        commands.push(format!("link add side{side} type veth peer name side{side}x"));
        commands.push(format!("link set side{side}x up"));
        commands.push(format!("link set side{side} up"));
        commands.push(format!("addr add 198.18.{side}.1/24 dev side{side}"));
        for host in [2, 3] {
            let known = format!("lladdr 00:00:00:00:00:00 nud permanent dev side{side}");
            commands.push(format!("neigh add 198.18.{side}.{host} {known}"));
        }
    }
    ip(&commands.join("\n"));
    let options = Options { flows: 65_536, look_up_from: 1, proof: Proof::NOT_REQUIRED };
    let mut path = KernelPath::make(options).unwrap();
    path.set_link(Link { partial_at_xdp: false, ..INBOUND }).unwrap();
    for device in xdp_relay::device::devices().unwrap() {
        if device.name == "side1x" {
            // No packet arrives by this device. Running a program that is attached to no device
            // takes the kernel milliseconds.
            path.attach(&device.name, device.index, Hook::XdpGeneric).unwrap();
        }
        if device.index != 1 {
            let (index, mac) = (device.index, device.mac);
            path.set_link(outbound(index, mac)).unwrap();
        }
    }
    path
}

/// Returns a payload with `times` nested ChannelData headers.
fn nested(times: usize) -> Vec<u8> {
    let mut payload = PAYLOAD.to_vec();
    for _ in 0..times {
        let header = [CHANNEL.to_be_bytes(), (payload.len() as u16).to_be_bytes()].concat();
        payload = [header, payload].concat();
    }
    payload
}

/// Input of a run: a frame of the first client.
struct Run {
    from: SocketAddr,
    to: SocketAddr,
    to_client: bool,
    frame: Vec<u8>,
    /// Payload with the maximum number of headers, which are removed in sequence.
    most: Vec<u8>,
}

impl Run {
    fn new(times: u32, to_client: bool) -> Self {
        let [x, y] = ends(0);
        let (from, to) = if to_client { (y, x) } else { (x, y) };
        let most = nested(times as usize);
        let headers = if to_client { 0 } else { times as usize };
        let frame = datagram(from, to, headers).frame(COMES, Check::Right);
        Self { from, to, to_client, frame, most }
    }
}

fn datagram(from: SocketAddr, to: SocketAddr, headers: usize) -> Datagram {
    Datagram {
        from,
        to,
        ttl: HOPS,
        tos: 0,
        dont_fragment: false,
        id: 7,
        label: 0,
        payload: nested(headers),
    }
}

/// Runs a frame of the first client. Returns the number of times that the frame was relayed.
///
/// # Panics
/// A part of the result does not belong to the first client.
fn run(path: &KernelPath, hook: Hook, times: u32, run: &Run) -> u64 {
    let ran = path.run(hook, &run.frame, times).unwrap();
    let seen = read(&ran.frame).unwrap_or_else(|| panic!("{:?} is no datagram", ran.frame));
    let datagram = &seen.datagram;
    // The client may have moved.
    let elsewhere = SocketAddr::new(run.to.ip(), run.to.port() + MOVED);
    let is_hers = datagram.to == run.to || run.to_client && datagram.to == elsewhere;
    assert!(datagram.from == run.from && is_hers, "somebody else's address: {datagram:?}");
    assert_eq!(datagram.error(seen.check), 0, "somebody else's checksum: {datagram:?}");
    let hops = usize::from(HOPS - datagram.ttl);
    let off = if run.to_client { times as usize - hops } else { hops };
    assert!(datagram.payload == run.most[4 * off..], "{hops} hops, {:?}", datagram.payload);
    assert!(matches!(ran.verdict, Verdict::Pass | Verdict::Redirect), "{:?}", ran.verdict);
    hops as u64
}

/// Installs, refreshes, moves and withdraws the routes of both clients until stopped. Returns the
/// kernel's counts for each client.
fn churn(routes: &mut Routes, stop: &AtomicBool) -> [FlowCounters; 2] {
    let mut rng = Rng::new(1);
    let mut counted = [FlowCounters::default(); 2];
    while !stop.load(Relaxed) {
        let now = linux_net::Clock::instant();
        routes.renew(now);
        let client = rng.below(2) as usize;
        // The first client has routes most of the time, since packets of this client are relayed.
        let often = if client == 0 { 400 } else { 8 };
        let set = match rng.below(often) {
            0 => {
                add(&mut counted[client], &routes.remove(id(client)));
                Ok(())
            }
            1 => routes.set(now, id(client), &flow(client, Instant::FAR_FUTURE, true)),
            2 => {
                // Visits one flow. The other flow may be withdrawn before its visit.
                routes.sweep(linux_net::Clock::instant(), 1, |id, carried| {
                    add(&mut counted[id.allocation.0 as usize - 1], &carried);
                });
                Ok(())
            }
            _ => routes.set(now, id(client), &flow(client, Instant::FAR_FUTURE, false)),
        };
        match set {
            Ok(()) => {}
            // Slots that were in use recently are resting.
            Err(KernelPathError::Full) => {
                add(&mut counted[client], &routes.remove(id(client)));
                thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    for (client, counted) in counted.iter_mut().enumerate() {
        add(counted, &routes.remove(id(client)));
    }
    counted
}

fn add(sum: &mut FlowCounters, more: &FlowCounters) {
    sum.to_peer_packets += more.to_peer_packets;
    sum.to_peer_bytes += more.to_peer_bytes;
    sum.to_client_packets += more.to_client_packets;
    sum.to_client_bytes += more.to_client_bytes;
}

#[test]
fn no_packet_gets_another_clients_addresses() {
    for hook in HOOKS {
        inside(|| {
            let path = path();
            let mut routes = path.routes(WorkerId(1)).unwrap();
            let (stop, relayed) = (AtomicBool::new(false), AtomicU64::new(0));
            let counted = thread::scope(|scope| {
                let churn = scope.spawn(|| churn(&mut routes, &stop));
                let stop = Stop(&stop);
                let many = Run::new(REPEAT, false);
                for _ in 0..FRAMES / u64::from(REPEAT) {
                    relayed.fetch_add(run(&path, hook, REPEAT, &many), Relaxed);
                }
                let single = [false, true].map(|to_client| Run::new(1, to_client));
                for _ in 0..SINGLE_RUNS {
                    for one in &single {
                        relayed.fetch_add(run(&path, hook, 1, one), Relaxed);
                    }
                }
                drop(stop);
                churn.join().unwrap()
            });
            let relayed = relayed.into_inner();
            eprintln!("{hook}: {relayed} relayed, {:?}, {:?}", counted, path.passed());
            assert!(relayed > FRAMES / 100, "they were relayed, too: {relayed}");
            assert!(counted[1].is_zero(), "counted for another: {counted:?}");
            // A packet relayed during the withdrawal of its route may be counted after the last
            // report.
            let total = counted[0].to_peer_packets + counted[0].to_client_packets;
            assert!(total <= relayed, "{total} counted of {relayed}");
        });
    }
}

#[test]
fn no_datagram_is_delivered_with_another_clients_flow_cookie() {
    for hook in HOOKS {
        inside(|| {
            let path = path();
            let mut routes = path.routes(WorkerId(1)).unwrap();
            let [x, y] = ends(0);
            let frame = datagram(y, x, 0).frame(COMES, Check::Right);
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let run = scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        path.run(hook, &frame, 64).unwrap();
                    }
                });
                let _stop = Stop(&stop);
                let (mut own, mut taken) = (BTreeSet::<FlowCookie>::new(), 0);
                let (mut rng, mut changes) = (Rng::new(2), 0_u32);
                while changes < CHANGES || taken < HANDED {
                    changes += 1;
                    assert!(changes < 100 * CHANGES, "{taken} were handed over");
                    assert!(!run.is_finished(), "the sender ended");
                    routes.renew(linux_net::Clock::instant());
                    let client = rng.below(2) as usize;
                    if rng.below(if client == 0 { 100 } else { 2 }) == 0 {
                        routes.withdraw_from_ring(id(client));
                    } else {
                        match routes
                            .deliver_to_ring(id(client), &flow(client, Instant::FAR_FUTURE, false))
                        {
                            Ok(flow_cookie) if client == 0 => own.extend(flow_cookie),
                            Ok(_) => {}
                            Err(KernelPathError::Full) => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let ring = routes.ring().unwrap();
                    while let Some(handed) = ring.next() {
                        assert_eq!(handed.payload(), PAYLOAD);
                        assert!(
                            own.contains(&handed.flow_cookie()),
                            "another's {:?}",
                            handed.flow_cookie()
                        );
                        assert!(handed.is_intact(y, x));
                        taken += 1;
                    }
                }
            });
        });
    }
}

/// Guard that stops the other thread when this thread exits in any way.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
