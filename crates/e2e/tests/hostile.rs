//! Hostile traffic from another host: the server stays up, serves, and does not grow.

use std::process::Command;
use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, echo_peer, require};
use test_support::eventually;

/// Datagrams of each flood; `E2E_FLOOD=1000000` makes it a million.
fn datagrams() -> u64 {
    std::env::var("E2E_FLOOD").ok().and_then(|text| text.parse().ok()).unwrap_or(50_000)
}

/// Growth without state for unauthenticated clients: the allocator's rounding and lazily touched
/// buffers.
const SLACK_KIB: u64 = 1024;

/// Datagrams after which a leak of 64 bytes for each exceeds [`SLACK_KIB`].
const RECEIVED_MIN: u64 = SLACK_KIB * 1024 / 64;

struct Scene {
    lab: Lab,
    server: Server,
}

impl Scene {
    fn new(tables: &str) -> Option<Self> {
        let lab = require(Lab::new())?;
        let config = Config { tables: tables.to_owned(), ..Config::for_lab(&lab) };
        let server = Server::start(&lab, &config);
        Some(Self { lab, server })
    }

    fn flood(&self, words: &[&str]) -> String {
        let out = Tool::run(
            self.lab
                .command(Host::Client, env!("CARGO_BIN_EXE_flood"))
                .arg(format!("{}:3478", self.lab.v4.listen))
                .args(words),
            Duration::from_secs(300),
        );
        assert!(out.ok, "{}", out.output);
        out.output
    }

    /// A call works: the server is not only alive.
    #[track_caller]
    fn assert_serves(&self) {
        let _peer = echo_peer(&self.lab, self.lab.v4.peer);
        let out = Tool::run(
            self.lab
                .command(Host::Client, "turnutils_uclient")
                .args(["-u", "alice", "-w", "correct-horse-battery"])
                .args([
                    "-e",
                    &self.lab.v4.peer.to_string(),
                    "-r",
                    "3480",
                    "-c",
                    "-n",
                    "10",
                    "-z",
                    "5",
                    &self.lab.v4.listen.to_string(),
                ]),
            Duration::from_secs(60),
        );
        assert!(out.ok && out.output.contains("tot_recv_msgs=10"), "{}", out.output);
    }

    /// Number of packets that the server has received from clients.
    fn received(&self) -> u64 {
        let status = self.server.json(&["status"]);
        status["traffic"]["from_clients"]["packets"].as_u64().expect("a number")
    }

    /// Runs a flood to warm up, and compares memory around others, of which the kernel may drop
    /// most.
    #[track_caller]
    fn assert_memory_stays(&self, words: &[&str]) {
        self.flood(words);
        let (before, earlier) = (self.server.resident_kib(), self.received());
        eventually("the server receives enough", || {
            self.flood(words);
            self.received() > earlier + RECEIVED_MIN
        });
        let (after, received) = (self.server.resident_kib(), self.received() - earlier);
        println!("{words:?}: resident {before} KiB before, {after} KiB after; {received} received");
        assert!(after <= before + SLACK_KIB, "{words:?}: {before} KiB before, {after} KiB after");
    }
}

#[test]
fn random_bytes() {
    let Some(scene) = Scene::new("") else { return };
    scene.assert_memory_stays(&["random", &datagrams().to_string()]);
    scene.assert_serves();
}

#[test]
fn allocate_requests_from_forged_sources() {
    let budget = "[quotas]\nunauthenticated_responses_per_second = 10\n";
    let Some(scene) = Scene::new(budget) else { return };
    // All of 10.88.0.0/16 is local in the client's host, and the server answers towards it.
    let client = scene.lab.namespace(Host::Client);
    let server = scene.lab.namespace(Host::Server);
    let gateway = scene.lab.v4.client.to_string();
    for arguments in [
        ["-n", &client, "route", "add", "local", "10.88.0.0/16", "dev", "lo"].as_slice(),
        ["-n", &server, "route", "add", "10.88.0.0/16", "via", &gateway].as_slice(),
    ] {
        let done = Command::new("ip").args(arguments).status();
        assert!(done.is_ok_and(|status| status.success()), "ip {arguments:?}");
    }
    scene.assert_memory_stays(&["spoofed", &datagrams().to_string(), "10.88"]);
    let status = scene.server.ask(&["status", "--json"]);
    assert!(
        status.ok && status.output.contains("\"unauthenticated_budget\""),
        "more was asked than strangers are answered:\n{}",
        status.output
    );
    scene.assert_serves();
}

#[test]
fn every_truncation_and_changed_byte_of_valid_messages() {
    let Some(scene) = Scene::new("") else { return };
    scene.assert_memory_stays(&["truncations"]);
    scene.assert_serves();
}
