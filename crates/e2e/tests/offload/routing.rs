//! Routing between clients and peers: listeners, interfaces, and clients that are peers of each
//! other.

use std::net::SocketAddr;
use std::time::Duration;

use e2e::{Caller, Config, Host, Lab};
use stun_wire::ChannelNumber;
use turn_types::IpFamily::V4;

use super::scene::{local, wait_until};
use super::{Call, Scene, by_xdp_and_tc};

/// Listeners at two ports of one address, and at another address, on an interface that also has
/// another client's address.
fn listeners(lab: &Lab, config: &mut Config) {
    for (host, address) in [(Host::Server, "10.77.1.11/24"), (Host::Client, "10.77.1.12/24")] {
        let end = if host == Host::Server { Host::Client } else { Host::Server };
        lab.run(host, "ip", &["addr", "add", address, "dev", &Lab::end_towards(end)]);
    }
    config.listen.extend(["10.77.1.1:3479", "10.77.1.11:3478"].map(str::to_owned));
    config.allow.push("10.77.1.12".to_owned());
}

#[test]
fn listeners_of_two_ports_and_two_addresses() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, listeners) else { return };
        let calls: Vec<Call> = ["10.77.1.1:3478", "10.77.1.1:3479", "10.77.1.11:3478"]
            .into_iter()
            .map(|listener| {
                let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 0));
                let server: SocketAddr = listener.parse().expect("an address");
                scene.call_between(scene.lab.v4.client, server, peer)
            })
            .collect();
        for call in &calls {
            scene.wait_for_kernel(call);
        }
        // Nothing crosses over.
        for (n, call) in calls.iter().enumerate() {
            call.caller.send(call.channel, &[n as u8]);
            drop(call.peer.send(&[n as u8; 2]));
        }
        for (n, call) in calls.iter().enumerate() {
            assert_eq!(call.receive_at_peer(Duration::from_secs(5)), Some(vec![n as u8]));
            assert_eq!(call.caller.receive(Duration::from_secs(5)), Some(vec![n as u8; 2]));
        }
    });
}

#[test]
fn a_peer_on_the_interface_that_the_client_is_on() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |lab, config| {
            listeners(lab, config);
            config.relay = vec![lab.v4.listen];
        }) else {
            return;
        };
        let peer = scene.lab.socket(Host::Client, ("10.77.1.12".parse().expect("an address"), 0));
        let call = scene.call_to(V4, peer);
        scene.wait_for_kernel(&call);
    });
}

/// Two clients that are each other's peers, on their channels.
struct Pair {
    ends: [(Caller, ChannelNumber); 2],
}

impl Pair {
    fn new(scene: &Scene) -> Self {
        let server = SocketAddr::new(scene.lab.v4.listen, 3478);
        let [mut a, mut b] = [(); 2].map(|()| scene.caller(scene.lab.v4.client, server, V4));
        let (to_b, to_a) = (a.bind(b.relayed()), b.bind(a.relayed()));
        Self { ends: [(a, to_b), (b, to_a)] }
    }

    /// True if a payload arrives in both directions.
    fn exchange(&self, payload: &[u8]) -> bool {
        let [a, b] = &self.ends;
        [(a, b), (b, a)].into_iter().all(|((from, channel), (to, _))| {
            from.send(*channel, payload);
            to.receive(Duration::from_secs(2)).as_deref() == Some(payload)
        })
    }

    fn wait_for_kernel(&self, scene: &Scene) {
        let what = || format!("the kernel relays: {:#}", scene.server.json(&["sessions"]));
        wait_until(what, || {
            let packets = || self.ends.each_ref().map(|(end, _)| scene.by_kernel(end));
            let before = packets();
            let came = (0..10).all(|_| self.exchange(b"through two allocations"));
            // Each message counts at both.
            came && packets().iter().zip(before).all(|(now, before)| *now >= before + 16)
        });
    }
}

#[test]
fn clients_that_are_each_others_peers() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let pair = Pair::new(&scene);
        pair.wait_for_kernel(&scene);
        for len in [0, 1, 171, 1448] {
            assert!(pair.exchange(&vec![7; len]), "{mode}: {len} bytes");
        }
    });
}

#[test]
fn a_forged_relayed_address_is_no_peer() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let pair = Pair::new(&scene);
        pair.wait_for_kernel(&scene);
        let [(a, _), (b, _)] = &pair.ends;
        // From the peer's host, as if it came from b's relayed address.
        let script = e2e::repository().join("crates/e2e/clients/forge.py");
        let end = Lab::end_towards(Host::Peer);
        let mac = scene.lab.run(Host::Server, "cat", &[&format!("/sys/class/net/{end}/address")]);
        let words = [
            script.to_str().expect("a path"),
            &Lab::end_towards(Host::Server),
            mac.trim(),
            &b.relayed().to_string(),
            &a.relayed().to_string(),
            "forged",
            // Some are shown to the sockets: one by each processor.
            "50",
        ];
        scene.lab.run(Host::Peer, "/usr/bin/python3", &words);
        assert_eq!(a.receive(Duration::from_secs(1)), None, "{mode}");
        let passed = &scene.server.json(&["status"])["offload"]["passed"];
        assert!(
            passed["hairpin"].as_u64() >= Some(2),
            "{mode}: it came to the program: {passed:#}"
        );
        // The same frame from a real peer arrives: it is well formed.
        let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 0));
        let call = scene.call_to(V4, peer);
        let (from, to) = (local(&call.peer).to_string(), call.caller.relayed().to_string());
        let words = [words[0], words[1], words[2], &from, &to, "genuine", "1"];
        scene.lab.run(Host::Peer, "/usr/bin/python3", &words);
        assert_eq!(call.caller.receive(Duration::from_secs(5)).as_deref(), Some(&b"genuine"[..]));
        assert!(pair.exchange(b"still there"), "{mode}");
    });
}
