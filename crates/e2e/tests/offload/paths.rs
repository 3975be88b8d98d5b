//! Paths to peers: a router with a smaller MTU behind the first link, and routes that change while
//! the kernel relays.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use e2e::{Host, Lab};
use turn_types::IpFamily::{self, V4, V6};

use super::rules::{STOPPED, has_nft, ip, nft};
use super::{Call, Scene, by_xdp_and_tc, wait_until};

/// A peer behind the lab's peer, which is a router with an MTU of 1280 bytes towards it.
struct Far(File);

const FAR: [&str; 2] = ["10.77.3.2", "fd77:3::2"];

impl Far {
    fn new(lab: &Lab) -> Self {
        let far = Self(lab_net::new_network_namespace().expect("the lab has some, too"));
        let path = far.path();
        let inside = format!("nsenter --net={path} ip");
        let router = [
            &format!("ip link add beyond mtu 1280 type veth peer name end netns {path}"),
            "ip addr add 10.77.3.1/24 dev beyond",
            "ip addr add fd77:3::1/64 dev beyond nodad",
            "ip link set beyond up",
            &format!("{inside} addr add 10.77.3.2/24 dev end"),
            &format!("{inside} addr add fd77:3::2/64 dev end nodad"),
            &format!("{inside} link set end up"),
            &format!("{inside} route add default via 10.77.3.1"),
            &format!("{inside} -6 route add default via fd77:3::1"),
            "sysctl -w net.ipv4.ip_forward=1",
            "sysctl -w net.ipv6.conf.all.forwarding=1",
        ];
        for command in router {
            let words: Vec<&str> = command.split(' ').collect();
            lab.run(Host::Peer, words[0], &words[1..]);
        }
        ip(lab, "route add 10.77.3.0/24 via 10.77.2.2");
        ip(lab, "-6 route add fd77:3::/64 via fd77:2::2");
        far
    }

    /// As other processes name it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn socket(&self, family: IpFamily) -> UdpSocket {
        let address: IpAddr = FAR[usize::from(family == V6)].parse().expect("an address");
        std::thread::scope(|scope| {
            let open = || {
                lab_net::enter_network_namespace(&self.0).expect("it is one");
                UdpSocket::bind(SocketAddr::new(address, 0)).expect("an address of it")
            };
            scope.spawn(open).join().expect("a socket")
        })
    }
}

/// Longer than the MTU of the second link, with their headers.
const LONG: usize = 1350;

/// Sends long payloads to a peer behind a smaller MTU: all arrive, except the ones by which the
/// stack learned the MTU. Returns the number of the 50 after them that the kernel relayed.
#[track_caller]
fn long_ones_arrive(mode: &str, scene: &Scene, call: &Call) -> u64 {
    wait_until(|| format!("{mode}: long packets arrive"), || call.to_peer(&[1; LONG]));
    let before = scene.by_kernel(&call.caller);
    for n in 0..50 {
        assert!(call.to_peer(&[n; LONG]), "{mode}: packet {n}");
    }
    assert!(call.to_client(b"and back"), "{mode}");
    scene.by_kernel(&call.caller) - before
}

/// The router fragments packets of IPv4, with or without DF of the client's, and refuses packets of
/// IPv6, which the stack then fragments.
#[test]
fn a_router_with_a_smaller_mtu() {
    for mode in ["off", "xdp", "tc"] {
        let allow = FAR.map(str::to_owned);
        let Some(scene) = Scene::new(mode, |_, config| config.allow.extend(allow)) else { return };
        let far = Far::new(&scene.lab);
        for (family, without_df) in [(V4, "0"), (V4, "1"), (V6, "0")] {
            let setting = format!("net.ipv4.ip_no_pmtu_disc={without_df}");
            scene.lab.run(Host::Client, "sysctl", &["-w", &setting]);
            let call = scene.call_to(family, far.socket(family));
            if mode != "off" {
                scene.wait_for_kernel(&call);
            }
            // The system asks routers for the MTU of IPv6 alone, and fragments are made by sockets.
            let relays = mode != "off" && family == V4;
            // On a busy machine the sockets relay most, now and then.
            let what = || format!("{mode}: the kernel relays most");
            wait_until(what, || long_ones_arrive(mode, &scene, &call) >= 25 || !relays);
        }
    }
}

/// A second link to the peer, which the server's host has no route by yet.
fn second_link(lab: &Lab) {
    let peer = lab.namespace(Host::Peer);
    ip(lab, &format!("link add second type veth peer name other netns {peer}"));
    ip(lab, "addr add 10.77.4.1/24 dev second");
    ip(lab, "link set second up");
    for command in ["addr add 10.77.4.2/24 dev other", "link set other up"] {
        let words: Vec<&str> = command.split(' ').collect();
        lab.run(Host::Peer, "ip", &words);
    }
    // Answers go by the first link.
    for name in ["all", "other", &Lab::end_towards(Host::Server)] {
        let setting = format!("net.ipv4.conf.{name}.rp_filter=0");
        lab.run(Host::Peer, "sysctl", &["-w", &setting]);
    }
    for (host, end) in [(Host::Server, "second"), (Host::Peer, "other")] {
        lab.behave_as_card(host, end).expect("as the lab's own links");
    }
}

/// Packets received by the peer on each of its links.
fn received(lab: &Lab) -> [u64; 2] {
    [&*Lab::end_towards(Host::Server), "other"].map(|end| {
        let file = format!("/sys/class/net/{end}/statistics/rx_packets");
        lab.run(Host::Peer, "cat", &[&file]).trim().parse().expect("a number")
    })
}

/// A call relayed by the kernel leaves by the second link some seconds after the route has changed.
/// Returns the scene and the call.
#[track_caller]
fn follows(
    what: &str,
    mode: &str,
    interfaces: &str,
    change: impl Fn(&Lab),
) -> Option<(Scene, Call)> {
    let scene = Scene::new(mode, |lab, config| {
        second_link(lab);
        config.tables.push_str(interfaces);
    })?;
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    change(&scene.lab);
    let start = Instant::now();
    while start.elapsed() < STOPPED {
        call.caller.send(call.channel, b"on the way");
        call.receive_at_peer(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    while call.receive_at_peer(Duration::from_millis(1)).is_some() {}
    let [old, new] = received(&scene.lab);
    for _ in 0..50 {
        assert!(call.to_peer(b"by another link"), "{what}, {mode}");
    }
    let now = received(&scene.lab);
    let (old, new) = (now[0] - old, now[1] - new);
    // The neighbour's questions and answers go by the old one.
    assert!(new >= 50 && old < 25, "{what}, {mode}: {old} by the old link, {new} by the new one");
    Some((scene, call))
}

const ALL: &str = "interfaces = [\"to-client\", \"to-peer\", \"second\"]\n";

fn new_route(lab: &Lab) {
    ip(lab, "route add 10.77.2.2/32 via 10.77.4.2 dev second");
}

#[test]
fn a_route_that_changes_to_another_interface() {
    by_xdp_and_tc(|mode| {
        let followed = follows("with the program", mode, ALL, new_route);
        let Some((scene, call)) = followed else { return };
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn a_route_that_changes_to_an_interface_without_the_program() {
    by_xdp_and_tc(|mode| drop(follows("without the program", mode, "", new_route)));
}

/// The program does not know fwmarks: it would use the route without one.
#[test]
fn a_route_by_a_mark_of_the_firewall() {
    let Some(()) = has_nft() else { return };
    by_xdp_and_tc(|mode| {
        follows("by mark", mode, ALL, |lab| {
            ip(lab, "route add 10.77.2.2/32 via 10.77.4.2 dev second table 100");
            ip(lab, "rule add fwmark 7 table 100");
            nft(
                lab,
                &[
                    "add table ip marks",
                    "add chain ip marks out { type route hook output priority -150 ; }",
                    "add rule ip marks out ip daddr 10.77.2.2 meta mark set 7",
                ],
            );
        });
    });
}
