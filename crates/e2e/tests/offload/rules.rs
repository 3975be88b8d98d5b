//! The host's own rules hold for flows that the kernel relays: a packet of each direction passes
//! them every two seconds, and its treatment decides about the others.

use std::time::{Duration, Instant};

use e2e::{Host, Lab};
use turn_types::IpFamily::{self, V4, V6};

use super::scene::wait_until;
use super::{Call, Scene, by_xdp_and_tc};

/// After this time no rule of the host's is passed by any more.
pub(crate) const STOPPED: Duration = Duration::from_secs(5);

/// A direction of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Peer,
    Client,
}

impl To {
    fn send(self, call: &Call) {
        match self {
            Self::Peer => call.caller.send(call.channel, b"there"),
            Self::Client => drop(call.peer.send(b"back")),
        }
    }

    fn came(self, call: &Call, patience: Duration) -> bool {
        match self {
            Self::Peer => call.receive_at_peer(patience).is_some(),
            Self::Client => call.caller.receive(patience).is_some(),
        }
    }

    fn drain(self, call: &Call) {
        while self.came(call, Duration::from_millis(1)) {}
    }
}

/// A call that the kernel relays; `None`: skipped.
fn scene(mode: &str, change: impl FnOnce(&Lab)) -> Option<(Scene, Call)> {
    let scene = Scene::new(mode, |lab, _| change(lab))?;
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    Some((scene, call))
}

pub(crate) fn has_nft() -> Option<()> {
    let found = std::process::Command::new("nft").arg("--version").output();
    e2e::require(found.map(drop).map_err(|error| format!("nft is not installed: {error}")))
}

pub(crate) fn nft(lab: &Lab, rules: &[&str]) {
    for rule in rules {
        lab.run(Host::Server, "nft", &[rule]);
    }
}

pub(crate) fn ip(lab: &Lab, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    lab.run(Host::Server, "ip", &words);
}

/// Sends without a pause: a direction that was stopped stays so, and the other one goes on.
#[track_caller]
fn assert_stops(what: &str, mode: &str, call: &Call, to: To) {
    let start = Instant::now();
    while start.elapsed() < STOPPED {
        to.send(call);
        to.came(call, Duration::from_millis(5));
    }
    // Packets in flight.
    std::thread::sleep(Duration::from_millis(200));
    to.drain(call);
    for _ in 0..50 {
        to.send(call);
    }
    assert!(!to.came(call, Duration::from_secs(1)), "{what}, {mode}: it goes on to the {to:?}");
}

/// A rule that stops a direction while the kernel relays, and is removed again.
fn stops_and_resumes(what: &str, to: To, ban: impl Fn(&Lab) + Sync, lift: impl Fn(&Lab) + Sync) {
    by_xdp_and_tc(|mode| {
        let Some((scene, call)) = scene(mode, |_| ()) else { return };
        ban(&scene.lab);
        assert_stops(what, mode, &call, to);
        lift(&scene.lab);
        let what = || format!("{what}, {mode}: it resumes");
        wait_until(what, || {
            to.send(&call);
            to.came(&call, Duration::from_millis(100))
        });
        to.drain(&call);
        scene.wait_for_kernel(&call);
    });
}

const BAN: [&str; 2] =
    ["add table inet ban", "add chain inet ban drops { type filter hook HOOK priority 0 ; }"];

pub(crate) fn ban(lab: &Lab, hook: &str, rule: &str) {
    nft(lab, &[BAN[0], &BAN[1].replace("HOOK", hook), &format!("add rule inet ban drops {rule}")]);
}

pub(crate) fn lift(lab: &Lab) {
    nft(lab, &["delete table inet ban"]);
}

#[test]
fn a_client_that_the_firewall_bans() {
    let Some(()) = has_nft() else { return };
    let rule = "ip saddr 10.77.1.2 udp dport 3478 drop";
    stops_and_resumes("input", To::Peer, |lab| ban(lab, "input", rule), lift);
}

#[test]
fn a_peer_that_the_firewall_bans() {
    let Some(()) = has_nft() else { return };
    let rule = "ip saddr 10.77.2.2 drop";
    stops_and_resumes("input of peers", To::Client, |lab| ban(lab, "input", rule), lift);
}

#[test]
fn an_output_that_the_firewall_bans() {
    let Some(()) = has_nft() else { return };
    let rule = "ip daddr 10.77.2.2 drop";
    stops_and_resumes("output", To::Peer, |lab| ban(lab, "output", rule), lift);
}

#[test]
fn a_policy_that_wants_encryption() {
    let policy = "dir out src 10.77.2.1/32 dst 10.77.2.2/32";
    let ban = |lab: &Lab| ip(lab, &format!("xfrm policy add {policy} action block"));
    let lift = |lab: &Lab| ip(lab, &format!("xfrm policy delete {policy}"));
    stops_and_resumes("xfrm", To::Peer, ban, lift);
}

#[test]
fn a_route_that_ends_here() {
    let ban = |lab: &Lab| ip(lab, "route add blackhole 10.77.2.2/32");
    let lift = |lab: &Lab| ip(lab, "route del blackhole 10.77.2.2/32");
    stops_and_resumes("blackhole", To::Peer, ban, lift);
}

/// A rule that routes by a separate mark.
#[test]
fn a_mark_that_leads_to_another_device() {
    let Some(()) = has_nft() else { return };
    let mark = |lab: &Lab| {
        ip(lab, "link add aside type veth peer name beyond");
        ip(lab, "link set aside up");
        ip(lab, "link set beyond up");
        ip(lab, "neigh add 10.77.2.2 lladdr 02:00:00:00:00:09 dev aside nud permanent");
        ip(lab, "route add 10.77.2.2/32 dev aside table 77");
        ip(lab, "rule add fwmark 7 lookup 77");
        let chain = "add chain inet ban drops { type route hook output priority mangle ; }";
        nft(lab, &[BAN[0], chain, "add rule inet ban drops ip daddr 10.77.2.2 meta mark set 7"]);
    };
    let unmark = |lab: &Lab| {
        lift(lab);
        ip(lab, "rule del fwmark 7 lookup 77");
        ip(lab, "link del aside");
    };
    stops_and_resumes("mark", To::Peer, mark, unmark);
}

/// A rule that changes a header field of the packets that leave in a direction. All of them have
/// the change, and the sockets relay the direction until the rule is lifted.
fn changes_all(what: &str, to: To, (family, change): (IpFamily, &str), unchanged: &str) {
    const COUNTED: u64 = 50;
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(family, family);
        scene.wait_for_kernel(&call);
        let end = if to == To::Peer { Host::Peer } else { Host::Client };
        let out = Lab::end_towards(end);
        let rule = format!("oifname {out} udp sport != 0 {change}");
        nft(&scene.lab, &[BAN[0], &BAN[1].replace("HOOK", "postrouting")]);
        nft(&scene.lab, &[&format!("add rule inet ban drops {rule}")]);
        let start = Instant::now();
        while start.elapsed() < STOPPED {
            to.send(&call);
            to.came(&call, Duration::from_millis(5));
        }
        let count = [
            "add table inet seen",
            "add chain inet seen in { type filter hook input priority 0 ; }",
        ];
        let unchanged = format!("add rule inet seen in meta l4proto udp {unchanged} counter");
        for command in [count[0], count[1], &unchanged] {
            scene.lab.run(end, "nft", &[command]);
        }
        let before = scene.by_kernel(&call.caller);
        for _ in 0..COUNTED {
            to.send(&call);
            assert!(to.came(&call, Duration::from_secs(5)), "{what}, {mode}: it arrives");
        }
        let seen = scene.lab.run(end, "nft", &["list table inet seen"]);
        assert!(seen.contains("counter packets 0 "), "{what}, {mode}: unchanged ones: {seen}");
        assert_eq!(scene.by_kernel(&call.caller), before, "{what}, {mode}: relayed by the kernel");
        assert!(scene.passed("altered") >= COUNTED, "{what}, {mode}: the reason");
        lift(&scene.lab);
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn a_rule_that_marks_packets_to_peers_with_a_dscp() {
    let Some(()) = has_nft() else { return };
    changes_all("DSCP to the peer", To::Peer, (V4, "ip dscp set ef"), "ip dscp != ef");
}

#[test]
fn a_rule_that_marks_packets_to_clients_with_a_dscp() {
    let Some(()) = has_nft() else { return };
    changes_all("DSCP to the client", To::Client, (V6, "ip6 dscp set ef"), "ip6 dscp != ef");
}

#[test]
fn a_rule_that_sets_the_time_to_live() {
    let Some(()) = has_nft() else { return };
    changes_all("TTL to the client", To::Client, (V4, "ip ttl set 7"), "ip ttl != 7");
}

#[test]
fn a_rule_that_sets_the_hop_limit() {
    let Some(()) = has_nft() else { return };
    changes_all("hop limit to the peer", To::Peer, (V6, "ip6 hoplimit set 7"), "ip6 hoplimit != 7");
}

/// Addresses that the host translates are no business of the kernel path.
#[test]
fn translated_addresses_are_left_to_the_sockets() {
    let Some(()) = has_nft() else { return };
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |lab, _| {
            nft(
                lab,
                &[
                    "add table ip nat",
                    "add chain ip nat out { type nat hook postrouting priority 100 ; }",
                    "add rule ip nat out oifname to-peer udp dport 4000 snat to 10.77.2.1:50000",
                ],
            );
        }) else {
            return;
        };
        let server = std::net::SocketAddr::new(scene.lab.v4.listen, 3478);
        let mut caller = scene.caller(scene.lab.v4.client, server, V4);
        let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 4000));
        let channel = caller.bind(super::scene::local(&peer));
        peer.set_read_timeout(Some(Duration::from_secs(5))).expect("a wait");
        for _ in 0..50 {
            caller.send(channel, b"there");
            let mut datagram = [0; 100];
            let (_, from) = peer.recv_from(&mut datagram).expect("it comes by the sockets");
            assert_eq!(from.to_string(), "10.77.2.1:50000", "{mode}");
            peer.send_to(b"back", from).expect("an answer");
            assert!(caller.receive(Duration::from_secs(5)).is_some(), "{mode}: and back");
        }
        assert_eq!(scene.by_kernel(&caller), 0, "{mode}");
    });
}

/// Most hosts have a firewall, which lets the server's traffic through.
#[test]
fn a_firewall_that_lets_it_through() {
    let Some(()) = has_nft() else { return };
    by_xdp_and_tc(|mode| {
        let firewall = |lab: &Lab| {
            nft(
                lab,
                &[
                    "add table inet firewall",
                    "add chain inet firewall in { type filter hook input priority 0 ; policy drop ; }",
                    "add rule inet firewall in iifname lo accept",
                    "add rule inet firewall in ct state established,related accept",
                    "add rule inet firewall in udp dport { 3478, 1024-65535 } accept",
                    "add rule inet firewall in meta l4proto ipv6-icmp accept",
                ],
            );
        };
        let Some((scene, call)) = scene(mode, firewall) else { return };
        // Beyond the first proof.
        let start = Instant::now();
        while start.elapsed() < STOPPED {
            assert!(call.to_peer(b"there") && call.to_client(b"back"), "{mode}");
        }
        scene.wait_for_kernel(&call);
    });
}
