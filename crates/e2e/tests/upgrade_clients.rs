//! Clients of other people, and every way of data, notice nothing of upgrades.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use e2e::{
    Certificates, Config, EchoCall, Host, Lab, Rounds, Running, SecureScene, Server, Stop, aioice,
    assert_conflict_is_refused, assert_echoed, coturn, echo_peer, require, uclient,
};
use serde_json::Value;
use test_support::eventually;
use turn_client::Families;
use turn_types::IpFamily;

/// Longest time for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Upgrades in a row.
const UPGRADES: usize = 3;

/// No kernel path: a process that loads its programs takes several seconds to start where the
/// processors are busy, and it may let a packet overtake another at the moments of a change.
const BY_SOCKETS: &str = "[offload]\nmode = \"off\"\n";

/// Allocations ever made, by this process and the ones before it.
fn made(server: &Server) -> u64 {
    let status = server.json(&["status"]);
    status["allocations"]["total"].as_u64().unwrap_or_else(|| panic!("no total: {status:#}"))
}

/// Upgrades with so many allocations, of which none is new.
#[track_caller]
fn upgrade(server: &mut Server, allocations: u64) {
    let before = made(server);
    server.upgrade_times(1);
    let status = server.json(&["status"]);
    let log = server.process.output();
    assert_eq!(status["took_over"]["allocations"], allocations, "{status:#}\n{log}");
    assert_eq!(status["allocations"]["total"], before, "made since: {status:#}\n{log}");
    // A worker publishes its number with its first turn.
    eventually("all live", || server.json(&["status"])["allocations"]["live"] == allocations);
}

#[test]
fn indications_and_channels_of_both_families_lose_nothing() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config { tables: BY_SOCKETS.to_owned(), ..Config::for_lab(&lab) };
    config.allow = ["10.77.2.0/24", "fd77:2::/64"].map(str::to_owned).to_vec();
    let mut server = Server::start(&lab, &config);
    let mut clients: Vec<Rounds> = [
        (IpFamily::V4, Families::Both),
        (IpFamily::V6, Families::Both),
        (IpFamily::V4, Families::V6),
        (IpFamily::V6, Families::V4),
    ]
    .into_iter()
    .map(|(over, families)| Rounds::new(&lab, &config, over, families))
    .collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    client.exchange();
                    sleep(Duration::from_millis(2));
                }
            });
        }
        // Also if an upgrade fails.
        let _stop = Stop::at_end(&stop);
        (0..UPGRADES).for_each(|_| upgrade(&mut server, 4));
    });
    let others: [IpAddr; 2] =
        ["10.77.2.77", "fd77:2::77"].map(|ip| ip.parse().expect("an address"));
    for client in &mut clients {
        client.exchange();
        client.caller.refresh();
        for (other, family) in others.into_iter().zip([IpFamily::V4, IpFamily::V6]) {
            if client.caller.relayed_of(family).is_some() {
                client.caller.permit(other);
            }
        }
    }
    server.wait_for_first_to_end();
}

/// Messages of each client of coturn, for thirty seconds: a stopped uclient prints no counts.
const MESSAGES: &str = "300";

/// Clients of coturn by a transport. None by TLS, where they read but one message of each record,
/// and the server puts those that come at once into one: they lose messages without an upgrade as
/// well.
struct Transport {
    options: &'static [&'static str],
    /// At the listener of IPv6, to a peer of IPv6, the option that asks for its family.
    ways: &'static [(bool, bool, &'static str)],
}

const TRANSPORTS: [Transport; 2] = [
    Transport {
        options: &[],
        ways: &[(false, false, "-X"), (false, true, "-x"), (true, false, "-X"), (true, true, "-x")],
    },
    Transport { options: &["-t"], ways: &[(false, true, "-x"), (true, false, "-X")] },
];

#[test]
fn coturns_clients_notice_nothing() {
    let Some(()) = require(coturn()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let config = Config { tables: BY_SOCKETS.to_owned(), ..Config::for_lab(&lab) };
    let mut server = Server::start(&lab, &config);
    let _peers = [lab.v4.peer, lab.v6.peer].map(|ip| echo_peer(&lab, ip));
    let account = config.accounts[0];
    let mut clients = Vec::new();
    let both = |transport| [(transport, &[][..]), (transport, &["-s"])];
    for (Transport { options, ways }, by) in TRANSPORTS.iter().flat_map(both) {
        for (at_v6, to_v6, family) in *ways {
            let all = ["-c", "-n", MESSAGES, "-z", "100", "-l", "171", family];
            let listen = if *at_v6 { lab.v6.listen } else { lab.v4.listen };
            let peer = if *to_v6 { lab.v6.peer } else { lab.v4.peer };
            let options = [&all[..], options, by].concat();
            clients.push((options, listen.to_string(), peer.to_string()));
        }
    }
    thread::scope(|scope| {
        let run = |client| {
            let (options, listen, peer): &(Vec<&str>, String, String) = client;
            let identity = ["-u", account.name, "-w", account.password, "-e", peer];
            let lab = &lab;
            scope.spawn(move || uclient(lab, &identity, options, listen))
        };
        let running: Vec<_> = clients.iter().map(run).collect();
        eventually("all relay", || {
            let sessions = server.json(&["sessions"]);
            let sessions = sessions["sessions"].as_array().expect("a list");
            let relays = |one: &&Value| one["to_peers"]["packets"].as_u64() > Some(0);
            sessions.iter().filter(relays).count() == clients.len()
        });
        let before = made(&server);
        let mut upgrades = 0;
        while upgrades < UPGRADES && !running.iter().any(|client| client.is_finished()) {
            server.upgrade_times(1);
            upgrades += 1;
        }
        assert!(upgrades > 0, "over before");
        assert_eq!(made(&server), before, "made since the first upgrade");
        for (client, (options, listen, peer)) in running.into_iter().zip(&clients) {
            let tool = client.join().expect("no panic");
            println!("{options:?} at {listen} to {peer}:");
            assert_conflict_is_refused(&tool, &server);
            assert_echoed(&tool, MESSAGES.parse().expect("a number"));
        }
    });
    server.wait_for_first_to_end();
}

#[test]
fn aioice_notices_nothing() {
    let Some(script) = require(aioice()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with(BY_SOCKETS) else {
        return;
    };
    let script = script.with_file_name("until_told.py");
    let (listen, account) = (lab.v4.listen.to_string(), Config::for_lab(&lab).accounts[0]);
    let mut clients = ["udp", "tcp", "tls"].map(|transport| {
        let mut python = lab.command(Host::Client, "/usr/bin/python3");
        python.arg(&script).args([&listen, "3478", account.name, account.password, transport]);
        Running::listening(&mut python)
    });
    clients.iter_mut().for_each(|client| client.wait_for("under way", PATIENCE));
    (0..UPGRADES).for_each(|_| upgrade(&mut server, 6));
    for client in &mut clients {
        client.end_input();
        let ended = client.wait(PATIENCE);
        let output = client.output();
        assert!(ended && output.contains("exchanged all of"), "{output}");
        for request in ["REFRESH", "CREATE_PERMISSION", "CHANNEL_BIND"] {
            let answer = format!("answered: {request} RESPONSE");
            assert_eq!(output.matches(&answer).count(), 2, "{output}");
        }
    }
    server.wait_for_first_to_end();
}

#[track_caller]
fn chromium_notices_nothing(over: &str) {
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    let mut config = Config { tables: certificates.simple(), ..Config::for_lab(&lab) };
    config.allow.push(lab.v4.relay.to_string());
    let mut server = Server::start(&lab, &config);
    let Some(mut call) = EchoCall::begin(&lab, &config, over) else { return };
    for _ in 0..UPGRADES {
        upgrade(&mut server, 2);
        call.go_on();
    }
    call.finish(false, &lab, &server);
    server.wait_for_first_to_end();
}

#[test]
fn chromium_notices_nothing_over_udp() {
    chromium_notices_nothing("udp");
}

#[test]
fn chromium_notices_nothing_over_tcp() {
    chromium_notices_nothing("tcp");
}

#[test]
fn chromium_notices_nothing_over_tls() {
    chromium_notices_nothing("tls");
}
