//! Any end of a route for the sockets ends it in the kernel, and nothing outlives the server.

use std::time::{Duration, Instant};

use e2e::{Caller, Config, Host, Lab, Server};
use serde_json::Value;
use turn_types::IpFamily::V4;
use xdp_relay::limits::LEASE;

use super::{Call, Scene, by_xdp_and_tc, wait_until};

/// One second, with the delay of a busy machine.
const A_SECOND: Duration = Duration::from_secs(3);

/// A call that the kernel relays.
fn scene(mode: &str) -> Option<(Scene, Call)> {
    let scene = Scene::new(mode, |_, _| ())?;
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    Some((scene, call))
}

#[track_caller]
fn assert_closes(what: &str, mode: &str, call: &Call, within: Duration) {
    let open = call.still_open();
    println!("{what}, {mode}: still open for {open:?} (to the peer, to the client)");
    assert!(open.iter().all(|time| *time <= within), "{what}, {mode}: {open:?}");
}

#[test]
fn an_allocation_that_is_given_back() {
    by_xdp_and_tc(|mode| {
        let records = "\n[accounting]\nfile = \"sessions.jsonl\"\n";
        let Some(scene) = Scene::new(mode, |_, config| config.tables += records) else { return };
        let mut call = scene.call(V4, V4);
        scene.wait_for_kernel(&call);
        call.caller.release();
        assert_closes("Refresh 0", mode, &call, A_SECOND);
        // Its record tells what the kernel relayed of it.
        test_support::eventually("the record of the session", || {
            let text = scene.server.file("sessions.jsonl");
            let record = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let Some(record) = record else { return false };
            let packets = |part: &Value| part.as_u64().expect("a number");
            let all =
                packets(&record["to_peers"]["packets"]) + packets(&record["to_client"]["packets"]);
            let by_kernel = packets(&record["kernel_packets"]);
            // Those before the routes, and those that show that the host forwards them, went over
            // sockets.
            assert!(by_kernel > 0 && by_kernel < all, "{record}");
            true
        });
    });
}

#[test]
fn an_allocation_that_the_operator_ends() {
    by_xdp_and_tc(|mode| {
        let Some((scene, call)) = scene(mode) else { return };
        let session = scene.session(&call.caller);
        let ended = scene.server.ask(&["session", "end", session["id"].as_str().expect("an id")]);
        assert!(ended.ok, "{}", ended.output);
        assert_closes("session end", mode, &call, A_SECOND);
    });
}

#[test]
fn a_peer_that_is_forbidden_from_now_on() {
    by_xdp_and_tc(|mode| {
        let Some((mut scene, call)) = scene(mode) else { return };
        scene.config.allow.clear();
        scene.reload();
        assert_closes("peers.allow", mode, &call, A_SECOND);
    });
}

#[test]
fn an_allocation_without_refresh() {
    // The shortest that settings allow.
    const LIFETIME: Duration = Duration::from_secs(60);
    let sleep_until = |at: Instant| {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
    };
    by_xdp_and_tc(|mode| {
        let shortest = "\n[lifetimes]\nallocation_default = \"60 s\"\n";
        let Some(scene) = Scene::new(mode, |_, config| config.tables += shortest) else { return };
        let call = scene.call(V4, V4);
        // The server began to count before its answer came.
        let end = Instant::now() + LIFETIME;
        sleep_until(end - Duration::from_secs(20));
        scene.wait_for_kernel(&call);
        sleep_until(end);
        assert_closes("expiry", mode, &call, A_SECOND);
    });
}

/// Permissions last 5 minutes, by the RFC and in the settings.
#[test]
fn a_permission_without_refresh() {
    if std::env::var_os("E2E_LONG").is_none() {
        return e2e::skip("takes more than five minutes; E2E_LONG=1 runs it");
    }
    let Some((scene, call)) = scene("xdp") else { return };
    let end = Instant::now() + Duration::from_secs(300);
    std::thread::sleep(end.saturating_duration_since(Instant::now() + Duration::from_secs(30)));
    scene.wait_for_kernel(&call);
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    std::thread::sleep(A_SECOND);
    assert!(!call.to_client(b"to the client"), "the permission has run out");
    assert!(call.to_peer(b"to the peer"), "its channel has not");
}

#[test]
fn a_bandwidth_from_now_on() {
    const RATE: u64 = 100_000;
    by_xdp_and_tc(|mode| {
        let Some((mut scene, call)) = scene(mode) else { return };
        scene.config.tables += &format!("\n[quotas]\nbytes_per_second = \"{RATE} B\"\n");
        scene.reload();

        let start = Instant::now();
        let (mut to_peer, mut to_client) = (0, 0);
        while start.elapsed() < Duration::from_secs(4) {
            for _ in 0..10 {
                call.caller.send(call.channel, &[1; 1000]);
                drop(call.peer.send(&[2; 1000]));
            }
            while let Some(datagram) = call.receive_at_peer(Duration::from_millis(2)) {
                to_peer += datagram.len() as u64;
            }
            while let Some(payload) = call.caller.receive(Duration::from_millis(2)) {
                to_client += payload.len() as u64;
            }
        }
        let elapsed = start.elapsed().as_secs_f64();
        println!("bandwidth, {mode}: {to_peer} and {to_client} bytes in {elapsed:.2} s");
        // The bucket holds a second's worth at first; the sockets and the kernel have one each.
        let least = 0.5 * RATE as f64 * elapsed;
        let most = 1.5 * RATE as f64 * (elapsed + 2.0);
        for bytes in [to_peer as f64, to_client as f64] {
            assert!((least..most).contains(&bytes), "{mode}: {bytes} of {least}..{most}");
        }
        wait_until(
            || format!("drops in {:#}", scene.session(&call.caller)),
            || scene.session(&call.caller)["dropped_packets"].as_u64() > Some(100),
        );
    });
}

#[test]
fn a_server_that_is_killed() {
    by_xdp_and_tc(|mode| {
        let Some((Scene { lab, config, mut server }, call)) = scene(mode) else { return };
        server.process.signal("KILL");
        assert_closes("SIGKILL", mode, &call, LEASE + A_SECOND);
        assert!(!server.process.wait(A_SECOND), "it was killed");
        assert_eq!(programs(&lab), "", "{mode}");

        // The next one starts where it left, and works.
        drop(server);
        let mut scene = Scene { server: Server::start(&lab, &config), lab, config };
        scene.assert_attached(mode);
        let call = scene.call(V4, V4);
        scene.wait_for_kernel(&call);
        assert!(scene.server.stop(), "{}", scene.server.process.output());
        let left = settings(&scene.lab);
        assert!(left.lines().all(|setting| setting == "0"), "{mode}: {left}");
    });
}

/// The programs are loaded when the next server serves already.
#[test]
fn a_server_that_is_killed_beside_a_keeper() {
    by_xdp_and_tc(|mode| {
        let Some((mut scene, call)) = scene(mode) else { return };
        let Scene { lab, server, .. } = &mut scene;
        let _keeper = server.keeper(lab);
        server.process.wait_for("a keeper has copies", 10 * A_SECOND);
        // Several times the interval of copies.
        std::thread::sleep(A_SECOND);
        server.process.signal("KILL");
        server.process.wait(10 * A_SECOND);
        server.start_again(lab, &[]);
        let status = server.json(&["status"]);
        assert_eq!(status["took_over"]["allocations"], 1, "{}", server.process.output());
        scene.assert_attached(mode);
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn a_server_that_hangs() {
    by_xdp_and_tc(|mode| {
        let Some((scene, call)) = scene(mode) else { return };
        scene.server.process.signal("STOP");
        assert_closes("SIGSTOP", mode, &call, LEASE + A_SECOND);
        scene.server.process.signal("CONT");
        // Packets sent meanwhile waited at the sockets, and continue now.
        while call.receive_at_peer(Duration::from_millis(200)).is_some() {}
        while call.caller.receive(Duration::from_millis(200)).is_some() {}
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn a_server_that_ends_leaves_interfaces_as_they_were() {
    for mode in ["xdp", "xdp-generic", "tc"] {
        let Some(lab) = e2e::require(Lab::new()) else { return };
        let (programs_before, settings_before) = (programs(&lab), settings(&lab));
        drop(lab);
        let Some((mut scene, _call)) = scene(mode) else { return };
        if mode != "tc" {
            assert_ne!(programs(&scene.lab), programs_before, "{mode}: it can be seen");
        }
        assert!(scene.server.stop(), "{}", scene.server.process.output());
        assert_eq!(programs(&scene.lab), programs_before, "{mode}");
        assert_eq!(settings(&scene.lab), settings_before, "{mode}");
    }
}

/// Has a call by one of several servers of the host relayed by the kernel.
#[track_caller]
fn assert_relays(lab: &Lab, config: &Config, server: &Server) {
    let listener = config.listen[0].parse().expect("an address");
    let peer = lab.socket(Host::Peer, (lab.v4.peer, 0));
    let socket = lab.socket(Host::Client, (lab.v4.client, 0));
    let mut caller = Caller::allocate(socket, listener, config.accounts[0], V4);
    let channel = caller.bind(peer.local_addr().expect("a bound socket"));
    peer.connect(caller.relayed()).expect("an address");
    let call = Call { caller, channel, peer };
    let by_kernel = || {
        let kernel = &server.json(&["status"])["offload"]["by_kernel"];
        ["to_peers", "from_peers"].map(|part| kernel[part]["packets"].as_u64())
    };
    let before = by_kernel();
    wait_until(
        || format!("{:?} is more than {before:?}: {}", by_kernel(), server.process.output()),
        || {
            assert!(call.to_peer(b"to the peer") && call.to_client(b"to the client"));
            by_kernel().iter().zip(before).all(|(now, before)| *now > before)
        },
    );
}

/// Look-ups of a server work as long as it runs, whichever other server on its host ends, in any
/// way.
#[test]
fn two_servers_of_one_host() {
    let Some(lab) = e2e::require(Lab::new()) else { return };
    if e2e::require(lab.behave_as_cards()).is_none() {
        return;
    }
    let before = settings(&lab);
    let configs = [3478, 3479].map(|port| {
        let mut config = Config::for_lab(&lab);
        config.listen = vec![format!("{}:{port}", lab.v4.listen)];
        config.tables = "[offload]\nmode = \"tc\"\n".to_owned();
        config
    });
    let [mut first, mut second] = configs.each_ref().map(|config| Server::start(&lab, config));
    assert_relays(&lab, &configs[0], &first);
    assert!(first.stop(), "{}", first.process.output());
    assert_eq!(settings(&lab), "3478\n3478\n", "the other one goes on");
    assert_relays(&lab, &configs[1], &second);

    let mut first = Server::start(&lab, &configs[0]);
    second.process.signal("KILL");
    assert!(!second.process.wait(A_SECOND), "it was killed");
    assert_eq!(settings(&lab), "3478\n3478\n", "the other one goes on");
    assert_relays(&lab, &configs[0], &first);
    assert!(first.stop(), "{}", first.process.output());
    assert_eq!(settings(&lab), before);
}

/// Programs of XDP and of traffic control on the server's interfaces.
fn programs(lab: &Lab) -> String {
    let links = lab.run(Host::Server, "ip", &["-o", "link", "show"]);
    let filters = lab.run(Host::Server, "tc", &["qdisc", "show"]);
    let is_one = |line: &&str| line.contains("xdp") || line.contains("clsact");
    links.lines().chain(filters.lines()).filter(is_one).collect()
}

/// Settings that the server changes for its look-ups.
fn settings(lab: &Lab) -> String {
    let files = ["ipv4", "ipv6"].map(|family| format!("/proc/sys/net/{family}/conf/lo/forwarding"));
    lab.run(Host::Server, "cat", &files.each_ref().map(String::as_str))
}
