//! Frames that leave the kernel path: complete, with valid checksums, and counted.

use std::time::Duration;

use e2e::{Host, Lab, Running};
use turn_types::IpFamily;

use super::{Call, Scene, by_xdp_and_tc, wait_until};

/// Lengths of payloads, in bytes: none, odd, even, and as long as fits in a packet with ChannelData
/// in front, IPv6 around it and 1500 bytes to a frame.
const LENGTHS: [usize; 6] = [0, 1, 2, 171, 1000, 1448];

fn payload(len: usize, n: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

/// Calls of every combination of families.
fn calls(scene: &Scene) -> Vec<Call> {
    let families = IpFamily::ALL.into_iter();
    let ways = families.flat_map(|client| IpFamily::ALL.map(|relay| (client, relay)));
    ways.map(|(client, relay)| scene.call(client, relay)).collect()
}

/// Every payload arrives unaltered, in both directions.
#[track_caller]
fn exchange(call: &Call) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let payload = payload(len, n);
        assert!(call.to_peer(&payload), "{len} bytes to the peer of {:?}", call.caller);
        assert!(call.to_client(&payload), "{len} bytes to the client of {:?}", call.caller);
    }
}

/// tcpdump of the packets that arrive at a host.
fn watch(lab: &Lab, host: Host) -> Running {
    let end = Lab::end_towards(Host::Server);
    let mut watch = Running::start(lab.command(host, "tcpdump").args([
        "-i",
        &end,
        "-Q",
        "in",
        "-nn",
        "-vv",
        "-l",
        "--immediate-mode",
        "udp",
    ]));
    watch.wait_for("listening on", Duration::from_secs(20));
    watch
}

fn checksums(mode: &str) {
    let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
    if std::process::Command::new("tcpdump").arg("--version").output().is_err() {
        return e2e::skip("tcpdump is not installed");
    }
    let calls = calls(&scene);
    calls.iter().for_each(|call| scene.wait_for_kernel(call));
    let hosts = [Host::Client, Host::Peer].map(|host| watch(&scene.lab, host));
    // Twice as many: tcpdump begins to see them some time after its message.
    let enough = 2 * LENGTHS.len() * calls.len();
    for watch in hosts {
        // At one moment: more may come at any time.
        let good_and_seen = || {
            let output = watch.output();
            let count = |text| output.matches(text).count();
            let good = count("udp sum ok");
            (good, good + count("bad udp cksum") + count("no cksum"))
        };
        wait_until(
            || format!("{enough} datagrams seen: {}", watch.output()),
            || {
                calls.iter().for_each(exchange);
                good_and_seen().1 >= enough
            },
        );
        let (good, seen) = good_and_seen();
        assert_eq!(good, seen, "{mode}:\n{}", watch.output());
    }
}

#[test]
fn checksums_by_xdp() {
    checksums("xdp");
}

#[test]
fn checksums_by_tc() {
    checksums("tc");
}

/// Packets of senders on the same machine that the kernel took.
fn of_this_machine(scene: &Scene) -> u64 {
    scene.traffic("partial_checksums").as_u64().expect("a number")
}

#[test]
fn checksums_that_senders_leave_to_be_completed() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let end = Lab::end_towards(Host::Server);
        for (host, other) in [(Host::Client, Host::Peer), (Host::Peer, Host::Client)] {
            scene.lab.run(host, "ethtool", &["-K", &end, "tx", "on"]);
            scene.lab.run(other, "ethtool", &["-K", &end, "tx", "off"]);
            for call in calls(&scene) {
                scene.wait_for_kernel(&call);
                // On a busy machine the sockets relay many of them.
                let enough = of_this_machine(&scene) + LENGTHS.len() as u64;
                let what = || format!("{mode}: {} of {enough}", of_this_machine(&scene));
                wait_until(what, || {
                    exchange(&call);
                    of_this_machine(&scene) >= enough
                });
            }
        }
        for host in [Host::Client, Host::Peer] {
            scene.lab.run(host, "ethtool", &["-K", &end, "tx", "on"]);
        }
        for call in calls(&scene) {
            scene.wait_for_kernel(&call);
            exchange(&call);
        }
        let text = scene.server.ask(&["status"]).output;
        assert!(text.contains("of its own senders were relayed by the kernel"), "{text}");
    });
}

/// A server beside a media server or in a container: everything as the kernel and the server have
/// it by default.
#[test]
fn a_peer_beside_the_server() {
    let Some(lab) = e2e::require(Lab::new()) else { return };
    let config = e2e::Config::for_lab(&lab);
    let server = e2e::Server::start(&lab, &config);
    let scene = Scene { lab, config, server };
    scene.assert_attached("tc");
    for call in calls(&scene) {
        scene.wait_for_kernel(&call);
        exchange(&call);
    }
    assert!(of_this_machine(&scene) > 0);
    assert_eq!(scene.traffic("passed")["checksum"], serde_json::Value::Null);
}

/// Longer than the MTU of a link: they come in fragments, which the sockets reassemble.
#[test]
fn datagrams_in_fragments() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        for call in calls(&scene) {
            scene.wait_for_kernel(&call);
            for (n, len) in [1500, 9000, 1000, 60_000].into_iter().enumerate() {
                let payload = payload(len, n);
                assert!(call.to_peer(&payload), "{len} bytes to the peer of {:?}", call.caller);
                assert!(call.to_client(&payload), "{len} bytes to the client of {:?}", call.caller);
            }
        }
    });
}

fn counters(mode: &str) {
    let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
    let call = scene.call(IpFamily::V4, IpFamily::V6);
    let (mut packets, mut bytes) = (0, 0);
    for n in 0..40 {
        let payload = payload(100 + n, n);
        assert!(call.to_peer(&payload) && call.to_client(&payload) && call.to_client(&payload));
        // A pause: without one, packets follow a punted packet through the stack.
        std::thread::sleep(Duration::from_millis(1));
        packets += 1;
        bytes += payload.len() as u64;
    }
    let expected = [("to_peers", packets, bytes), ("to_client", 2 * packets, 2 * bytes)];
    let what = || format!("{expected:?}: {:#}", scene.session(&call.caller));
    wait_until(what, || {
        let session = scene.session(&call.caller);
        expected.iter().all(|(way, packets, bytes)| {
            session[way]["packets"] == *packets && session[way]["bytes"] == *bytes
        })
    });
    let session = scene.session(&call.caller);
    assert_eq!(session["dropped_packets"], 0, "{session:#}");
    assert_eq!(session["offload"]["by"], "kernel", "{session:#}");
    assert_eq!(session["offload"]["channels"], 1, "{session:#}");

    let (kernel, sockets) = (scene.traffic("by_kernel"), scene.traffic("by_sockets"));
    let of = |part: &serde_json::Value, leg: &str, what: &str| {
        part[leg][what].as_u64().unwrap_or_else(|| panic!("{leg} {what} of {part:#}"))
    };
    for (leg, packets, bytes) in
        [("to_peers", packets, bytes), ("from_peers", 2 * packets, 2 * bytes)]
    {
        let both = |what| of(&kernel, leg, what) + of(&sockets, leg, what);
        assert_eq!((both("packets"), both("bytes")), (packets, bytes), "{leg} {kernel:#}");
        // Some are shown to the sockets, and prove that the host's rules let the others through.
        assert!(of(&kernel, leg, "packets") >= packets / 2, "{leg} {kernel:#} {sockets:#}");
    }
    for (from, to) in [("from_clients", "to_peers"), ("to_clients", "from_peers")] {
        let packets = of(&kernel, to, "packets");
        assert_eq!(of(&kernel, from, "packets"), packets, "{kernel:#}");
        let headers = 4 * packets;
        assert_eq!(of(&kernel, from, "bytes"), of(&kernel, to, "bytes") + headers, "{kernel:#}");
    }
    assert_eq!(
        session["offload"]["packets"],
        of(&kernel, "to_peers", "packets") + of(&kernel, "from_peers", "packets")
    );
}

#[test]
fn counters_by_xdp() {
    counters("xdp");
}

#[test]
fn counters_by_tc() {
    counters("tc");
}
