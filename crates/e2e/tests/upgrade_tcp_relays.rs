//! Relays for TCP (RFC 6062) and their connections go on in the next process.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Running, SecureScene, Server, pion, pion_run, require};
use test_support::eventually;

const PATIENCE: Duration = Duration::from_secs(60);

/// A stream of ten megabytes takes some seconds, and its pipes are paused for it again and again.
const SLOWLY: &str = "[tcp]\nrelaying = true\n[quotas]\nbytes_per_second = \"3 MiB\"\n";

/// Pieces of 4000 bytes of the client's stream.
const PIECES: u32 = 2500;

/// Bytes of the peer's stream.
const SAID: u32 = 6_000_000;

/// Echoes all that the first caller sends. The receiver gets the caller's address.
fn echo(lab: &Lab) -> Receiver<SocketAddr> {
    let listener = lab.listener(Host::Peer, (lab.v4.peer, e2e::ECHO_PORT));
    let (caller, receiver) = channel();
    thread::spawn(move || {
        let (mut stream, from) = listener.accept().expect("a call");
        // The receiver no longer exists if the test has failed.
        let _ = caller.send(from);
        let mut back = stream.try_clone().expect("a second handle");
        std::io::copy(&mut stream, &mut back).expect("echoed");
    });
    receiver
}

/// Bytes that the client's allocation has relayed to peers.
fn bytes(server: &Server) -> u64 {
    let sessions = server.json(&["sessions"]);
    sessions["sessions"][0]["to_peers"]["bytes"].as_u64().unwrap_or_default()
}

/// Waits until it has relayed more: a connection that is being bound has to stay.
#[track_caller]
fn wait_for_bytes(server: &Server, before: u64) {
    eventually("data are relayed", || bytes(server) > before);
}

/// Upgrades until `is_done`; returns how often.
#[track_caller]
fn upgrade_until(server: &mut Server, is_done: impl Fn() -> bool) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut upgrades = 0;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not end: {}", server.process.output());
        upgrade(server);
        upgrades += 1;
    }
    upgrades
}

/// Upgrades, and demands that the next process has the allocation.
#[track_caller]
fn upgrade(server: &mut Server) {
    server.upgrade_times(1);
    let status = server.json(&["status"]);
    assert_eq!(status["took_over"]["allocations"], 1, "{}", server.process.output());
}

/// A client's connection to a peer, then its relay, at which a peer calls: the first process does
/// not stay for any of them. No stream ends during an upgrade: a stream over TLS that has ended in
/// one direction remains in its process.
#[track_caller]
fn streams_go_on(transport: &str) {
    let Some(client) = require(pion()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with(SLOWLY) else {
        return;
    };
    let echo = echo(&lab);
    let config = Config::for_lab(&lab);
    let mut program = Running::start(&mut pion_run(&lab, &client, &config, (PIECES, transport)));
    wait_for_bytes(&server, 0);
    let has = |word| program.output().contains(word);
    let upgrades = upgrade_until(&mut server, || has("echoed"));
    assert!(upgrades > 0, "it was over before");
    server.wait_for_first_to_end();
    program.wait_for("relayed address ", PATIENCE);
    let output = program.output();
    let relayed = output.split("relayed address ").nth(1).and_then(|rest| rest.lines().next());
    let relayed: SocketAddr = relayed.expect("an address").parse().expect("an address");
    let caller = echo.recv_timeout(PATIENCE).expect("a caller");
    assert_eq!(caller, relayed, "the call left by the relayed address");

    upgrade(&mut server);
    let before = bytes(&server);
    let mut call = lab.connect(Host::Peer, relayed);
    call.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let said: Vec<u8> = (0..SAID).map(|at| (at % 251) as u8).collect();
    let mut saying = call.try_clone().expect("a second handle");
    thread::scope(|scope| {
        scope.spawn(|| saying.write_all(&said).expect("said"));
        let hearing = scope.spawn(|| {
            let mut heard = vec![0; said.len()];
            call.read_exact(&mut heard).expect("heard");
            assert!(heard == said, "the stream came back altered");
        });
        wait_for_bytes(&server, before);
        let upgrades = upgrade_until(&mut server, || hearing.is_finished());
        assert!(upgrades > 0, "it was over before");
    });
    call.shutdown(Shutdown::Write).expect("ended");
    assert_eq!(call.read(&mut [0; 1]).expect("the end"), 0, "more came back than was said");
    let _told = lab.connect(Host::Peer, relayed);
    assert!(program.wait(PATIENCE), "{}", program.output());
    assert!(program.output().contains("a peer was served"), "{}", program.output());
    let status = server.json(&["status"]);
    assert_eq!(status["allocations"]["live"], 0, "{status:#}");
}

#[test]
fn streams_over_tcp_go_on() {
    streams_go_on("tcp-relay");
}

#[test]
fn streams_over_tls_go_on() {
    streams_go_on("tls-relay");
}
