//! coturn's own client utilities against the real binary, over veth links between namespaces.

use std::time::Duration;

use e2e::{
    Config, Host, Lab, Running, Server, Tool, assert_conflict_is_refused, assert_echoed, coturn,
    echo_peer, require, uclient,
};
use test_support::eventually;

const PATIENCE: Duration = Duration::from_secs(120);

/// A lab with a server in it, and coturn's echo peer on port 3480 of both families.
struct Scene {
    lab: Lab,
    server: Server,
    _peers: [Running; 2],
}

impl Scene {
    fn new(change: impl FnOnce(&mut Config)) -> Option<Self> {
        require(coturn())?;
        let lab = require(Lab::new())?;
        let mut config = Config::for_lab(&lab);
        change(&mut config);
        let server = Server::start(&lab, &config);
        let peers = [lab.v4.peer, lab.v6.peer].map(|ip| echo_peer(&lab, ip));
        Some(Self { lab, server, _peers: peers })
    }

    /// Runs uclient with alice's credentials, the IPv4 listener and the IPv4 peer, and `options`.
    fn uclient(&self, options: &[&str]) -> Tool {
        let peer = self.lab.v4.peer.to_string();
        self.uclient_to(
            &["-u", "alice", "-w", "correct-horse-battery", "-e", &peer],
            options,
            &self.lab.v4.listen.to_string(),
        )
    }

    fn uclient_to(&self, identity: &[&str], options: &[&str], server: &str) -> Tool {
        let mut tool = uclient(&self.lab, identity, options, server);
        assert_conflict_is_refused(&tool, &self.server);
        if !tool.ok {
            tool.output += &self.server.ask(&["why"]).output;
        }
        tool
    }
}

#[test]
fn channels() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-c", "-n", "50", "-m", "4", "-l", "200", "-z", "5"]), 200);
}

#[test]
fn channels_with_rtcp_pairs() {
    // Without -c uclient also requests an even port with a reservation and redeems the token.
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-n", "20", "-m", "2", "-z", "5"]), 40);
}

#[test]
fn over_tcp() {
    // 8656-5-13
    let Some(scene) = Scene::new(|_| ()) else { return };
    for options in [&["-t", "-c", "-m", "4", "-l", "171"][..], &["-t", "-c", "-s", "-l", "1000"]] {
        let messages = if options.contains(&"-m") { 200 } else { 50 };
        assert_echoed(&scene.uclient(&[options, &["-n", "50", "-z", "5"]].concat()), messages);
    }
    let peer = scene.lab.v6.peer.to_string();
    let identity = ["-u", "alice", "-w", "correct-horse-battery", "-e", &peer];
    let listen = scene.lab.v6.listen.to_string();
    let options = ["-t", "-c", "-x", "-n", "20", "-z", "5"];
    assert_echoed(&scene.uclient_to(&identity, &options, &listen), 20);
}

#[test]
fn moving_clients() {
    // 8016-3.1.2-01, 8016-3.2.2-01, 8016-3.2.2-02: uclient requests a ticket, closes its socket,
    // and continues from another port, which belongs to any worker.
    let mobile = |config: &mut Config| config.top.push_str("mobility = true\n");
    let Some(scene) = Scene::new(mobile) else { return };
    for options in [&["-M", "-c", "-m", "8"][..], &["-M", "-c", "-m", "8", "-s"]] {
        let options = [options, &["-n", "20", "-z", "5"]].concat();
        // In one of some two hundred runs a new socket gets a port that another client has just
        // left, and whose allocation is still there: a mismatch, at which uclient gives up.
        let mut tool = scene.uclient(&options);
        if tool.output.contains("error 437") {
            tool = scene.uclient(&options);
        }
        assert_echoed(&tool, 160);
    }
    let status = scene.server.json(&["status"]);
    let moved = status["allocations"]["moved"].as_u64();
    assert!(moved >= Some(16), "{status:#}");
}

/// The keys of tokens that `uclient -J` has built in. Its own copies are a line break longer, which
/// coturn cuts off.
const TOKEN_KEYS: &str = "
[auth]
users = false
token_keys = [
    { kid = \"north\", key = \"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\" },
    { kid = \"union\", key = \"MTIzNDU2Nzg5MDEyMzQ1Ng==\", algorithm = \"A128GCM\" },
    { kid = \"oldempire\", key = \"MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=\" },
]
server_name = \"turn1.turn.test\"
";

#[test]
fn access_tokens() {
    // 7635-4-01, 7635-6.2-01, 7635-7-04: uclient takes any of its keys for each Allocate and each
    // Refresh.
    let config = |config: &mut Config| {
        config.top.push_str("compatibility.coturn_tokens = true\n");
        TOKEN_KEYS.clone_into(&mut config.tables);
    };
    let Some(scene) = Scene::new(config) else { return };
    let peer = scene.lab.v4.peer.to_string();
    let listen = scene.lab.v4.listen.to_string();
    for options in [&["-J", "-c", "-m", "8"][..], &["-J", "-c", "-m", "8", "-t"]] {
        let options = [options, &["-n", "20", "-z", "5"]].concat();
        assert_echoed(&scene.uclient_to(&["-e", &peer], &options, &listen), 160);
    }
    // A user whose key was removed is unknown.
    let mut other = Config::for_lab(&scene.lab);
    TOKEN_KEYS.replace("kid = \"", "kid = \"old-").clone_into(&mut other.tables);
    scene.server.rewrite(&other);
    assert!(scene.server.ask(&["reload"]).ok);
    let refused = scene.uclient_to(&["-e", &peer], &["-J", "-c", "-n", "1"], &listen);
    assert!(!refused.ok, "an unknown key was taken:\n{}", refused.output);
    let refusals = &scene.server.json(&["status"])["refusals"];
    assert!(refusals["unknown_token_key"].as_u64() > Some(0), "{refusals:#}");
    let log = scene.server.process.output();
    assert!(!log.contains("ODkwMT"), "keys are not logged:\n{log}");
}

#[test]
fn send_indications() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(
        &scene.uclient(&["-c", "-s", "-n", "50", "-m", "4", "-l", "1000", "-z", "5"]),
        200,
    );
}

#[test]
fn dont_fragment_and_padding() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-c", "-s", "-g", "-n", "20", "-z", "5"]), 20);
    assert_echoed(&scene.uclient(&["-c", "-D", "-l", "101", "-n", "20", "-z", "5"]), 20);
}

#[test]
fn requested_family_ipv4() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-c", "-X", "-n", "20", "-z", "5"]), 20);
}

#[test]
fn ipv6_client_and_ipv6_relay() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let peer = scene.lab.v6.peer.to_string();
    let identity = ["-u", "alice", "-w", "correct-horse-battery", "-e", &peer];
    let listen = scene.lab.v6.listen.to_string();
    assert_echoed(&scene.uclient_to(&identity, &["-c", "-x", "-n", "20", "-z", "5"], &listen), 20);
    assert_echoed(
        &scene.uclient_to(&identity, &["-c", "-x", "-s", "-n", "20", "-z", "5"], &listen),
        20,
    );
}

#[test]
fn ipv4_client_and_ipv6_relay_and_the_reverse() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let (v4, v6) = (scene.lab.v4.peer.to_string(), scene.lab.v6.peer.to_string());
    let user = ["-u", "alice", "-w", "correct-horse-battery", "-e"];
    let out = scene.uclient_to(
        &[&user[..], &[&v6]].concat(),
        &["-c", "-x", "-n", "20", "-z", "5"],
        &scene.lab.v4.listen.to_string(),
    );
    assert_echoed(&out, 20);
    let out = scene.uclient_to(
        &[&user[..], &[&v4]].concat(),
        &["-c", "-X", "-n", "20", "-z", "5"],
        &scene.lab.v6.listen.to_string(),
    );
    assert_echoed(&out, 20);
}

#[test]
fn dual_allocation() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-Z", "-n", "20", "-m", "2", "-z", "5"]), 40);
}

#[test]
fn client_to_client_through_two_allocations() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let out = scene.uclient(&["-y", "-c", "-n", "20", "-m", "4", "-z", "5"]);
    assert_echoed(&out, 80);
}

#[test]
fn extra_requests() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    assert_echoed(&scene.uclient(&["-c", "-G", "-n", "20", "-m", "2", "-z", "5"]), 40);
}

/// Reasons to drop a damaged request.
const DAMAGE: [&str; 3] = ["bad_fingerprint", "malformed_stun", "not_stun"];

#[test]
fn negative_protocol_tests_leave_it_serving() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let mut client = scene.lab.command(Host::Client, "turnutils_uclient");
    client.args(["-u", "alice", "-w", "correct-horse-battery", "-c", "-N", "-R", "-n", "5"]);
    client.args(["-e", &scene.lab.v4.peer.to_string(), &scene.lab.v4.listen.to_string()]);
    // About one packet in ten is damaged, and uclient may run forever when the server drops one.
    // Most damage is found by the FINGERPRINT.
    eventually("a damaged packet arrives", || {
        drop(Tool::run(&mut client, Duration::from_secs(5)));
        let status = scene.server.json(&["status"]);
        DAMAGE.iter().any(|reason| status["drops"][reason].is_u64())
    });
    assert_echoed(&scene.uclient(&["-c", "-n", "20", "-z", "5"]), 20);
}

#[test]
fn time_limited_credentials() {
    const SECRET: &str = "north-of-the-river-0123456789";
    let secret = format!("[[auth.secrets]]\nname = \"web\"\nsecret = \"{SECRET}\"\n");
    let Some(scene) = Scene::new(|config| config.tables = secret) else { return };
    let peer = scene.lab.v4.peer.to_string();
    let listen = scene.lab.v4.listen.to_string();
    let options = ["-c", "-n", "20", "-m", "2", "-z", "5"];
    assert_echoed(
        &scene.uclient_to(&["-u", "bob", "-W", SECRET, "-e", &peer], &options, &listen),
        40,
    );

    let wrong = scene.uclient_to(
        &["-u", "bob", "-W", "another-secret-0123456789", "-e", &peer],
        &options,
        &listen,
    );
    assert!(!wrong.ok, "a wrong secret must not allocate:\n{}", wrong.output);
    let refusals = &scene.server.json(&["status"])["refusals"];
    assert!(refusals["wrong_secret"].as_u64() > Some(0), "{refusals:#}");

    // The log has the user part of "time:bob".
    let log = scene.server.process.output();
    assert!(log.contains("allocation ended") && log.contains("bob"), "{log}");
    assert!(!log.contains(":bob"), "{log}");
}

#[test]
fn wrong_password_is_refused() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let peer = scene.lab.v4.peer.to_string();
    let identity = ["-u", "alice", "-w", "wrong", "-e", &peer];
    let out = scene.uclient_to(&identity, &["-c", "-n", "5"], &scene.lab.v4.listen.to_string());
    assert!(!out.ok, "a wrong password must not allocate:\n{}", out.output);
    let status = scene.server.ask(&["status", "--json"]);
    assert!(
        status.output.contains("wrong_password"),
        "the refusal is counted by its reason:\n{}",
        status.output
    );
    let why = scene.server.ask(&["why"]);
    assert!(
        why.output.contains("calls itself \"alice\"") && why.output.contains("wrong_password: "),
        "the refusal is explained:\n{}",
        why.output
    );
}

#[test]
fn private_peers_are_refused_unless_allowed() {
    let Some(scene) = Scene::new(|config| config.allow.clear()) else { return };
    let out = scene.uclient(&["-c", "-n", "5"]);
    assert!(!out.ok, "10.77.2.2 must be refused:\n{}", out.output);
    let why = scene.server.ask(&["why", "alice"]);
    let words = why.output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("peer_forbidden: ") && words.contains("`peers.allow = [\"10.77.2.2\"]`"),
        "the refusal is explained with its remedy:\n{}",
        why.output
    );
    let status = scene.server.ask(&["status", "--json"]);
    assert!(
        status.output.contains("peer_forbidden"),
        "the refusal is counted by its reason:\n{}",
        status.output
    );
}

#[test]
fn stunclient_sees_its_own_address() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    for (listen, own) in
        [(scene.lab.v4.listen, scene.lab.v4.client), (scene.lab.v6.listen, scene.lab.v6.client)]
    {
        let out = Tool::run(
            scene.lab.command(Host::Client, "turnutils_stunclient").args([
                "-p",
                "3478",
                &listen.to_string(),
            ]),
            PATIENCE,
        );
        let told = format!("UDP reflexive addr: {own}:");
        assert!(out.output.contains(&told), "no {told}\n{}", out.output);
    }
}

#[test]
fn many_sessions_lose_nothing() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let options = ["-c", "-n", "500", "-m", "20", "-l", "170", "-z", "2"];
    assert_echoed(&scene.uclient(&options), 10_000);
    let sessions = scene.server.ask(&["sessions", "--json"]);
    assert!(sessions.ok, "{}", sessions.output);
}

#[test]
fn tcp_is_relayed_between_two_clients() {
    // RFC 6062. uclient calls itself: each of its clients is the peer of another.
    let Some(lab) = require(Lab::new()) else { return };
    if require(coturn()).is_none() {
        return;
    }
    let mut config = Config::for_lab(&lab);
    config.tables = "[tcp]\nrelaying = true\n".to_owned();
    config.allow.push(lab.v4.relay.to_string());
    let server = Server::start(&lab, &config);
    let out = Tool::run(
        lab.command(Host::Client, "turnutils_uclient")
            .args(["-u", "alice", "-w", "correct-horse-battery", "-p", "3478"])
            .args(["-T", "-n", "20", "-m", "2", "-l", "171", "-z", "5"])
            .arg(lab.v4.listen.to_string()),
        PATIENCE,
    );
    assert_echoed(&out, 40);
    let status = server.json(&["status"]);
    assert_eq!(status["traffic"]["to_peers"]["packets"], 0, "nothing over UDP: {status:#}");
}

/// The kernel lets a second server of the same user share the port and the clients.
#[test]
fn a_second_server_at_the_port_is_told() {
    let Some(scene) = Scene::new(|_| ()) else { return };
    let faults = || scene.server.json(&["status"])["now"]["problems"].to_string();
    assert_eq!(faults(), "[]");
    let mut other = scene.lab.command(Host::Server, "turnserver");
    other.args(["-n", "-L", &scene.lab.v4.listen.to_string(), "-p", "3478", "-z", "--no-cli"]);
    let other = Running::start(other.args(["--log-file", "stdout", "--pidfile", "/dev/null"]));
    eventually("the other server is told", || faults().contains("UDP port 3478"));
    drop(other);
    eventually("its end is noticed", || faults() == "[]");
}
