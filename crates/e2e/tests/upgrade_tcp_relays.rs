//! Relays for TCP (RFC 6062) and their connections go on in the next process.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use e2e::{Config, Host, Lab, Running, SecureScene, Server, Stop, pion, pion_run, require};
use test_support::eventually;

const PATIENCE: Duration = Duration::from_secs(60);

/// A rate at which the pipes of a stream are paused often.
const SLOWLY: &str = "[tcp]\nrelaying = true\n[quotas]\nbytes_per_second = \"3 MiB\"\n";

/// Upgrades during each stream.
const UPGRADES: usize = 3;

/// Last byte of the peer's stream, after repeated runs of 0 to 250.
const LAST: u8 = 251;

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

/// Waits until it has relayed more: the connection is bound then.
#[track_caller]
fn wait_for_bytes(server: &Server, before: u64) {
    eventually("data are relayed", || bytes(server) > before);
}

/// Upgrades, and demands that the next process has the allocation.
#[track_caller]
fn upgrade(server: &mut Server) {
    server.upgrade_times(1);
    let status = server.json(&["status"]);
    assert_eq!(status["took_over"]["allocations"], 1, "{}", server.process.output());
}

/// Upgrades several times, after new data of the stream each.
#[track_caller]
fn upgrade_in_stream(server: &mut Server) {
    for _ in 0..UPGRADES {
        wait_for_bytes(server, bytes(server));
        upgrade(server);
    }
}

/// Sends bytes until `is_enough`, then the last byte. Returns the number of bytes.
fn say(call: &mut TcpStream, is_enough: &AtomicBool) -> usize {
    let round: Vec<u8> = (0..LAST).collect();
    let mut bytes = 1;
    while !is_enough.load(Ordering::Relaxed) {
        call.write_all(&round).expect("said");
        bytes += round.len();
    }
    call.write_all(&[LAST]).expect("said");
    bytes
}

/// Receives and checks bytes up to the last byte. Returns the number of bytes.
fn hear(back: &mut TcpStream) -> usize {
    let bytes = BufReader::new(back).bytes().map(|byte| byte.expect("heard"));
    let mut heard = 0;
    for (byte, expected) in bytes.take_while(|byte| *byte != LAST).zip((0..LAST).cycle()) {
        assert_eq!(byte, expected, "the stream came back altered");
        heard += 1;
    }
    heard + 1
}

/// A client's connection to a peer, then its relay, at which a peer calls: all of them move, also
/// a stream over TLS that has ended in one direction.
#[track_caller]
fn streams_go_on(transport: &str) {
    let Some(client) = require(pion()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with(SLOWLY) else {
        return;
    };
    let echo = echo(&lab);
    let config = Config::for_lab(&lab);
    let mut program = Running::listening(&mut pion_run(&lab, &client, &config, (1, transport)));
    upgrade_in_stream(&mut server);
    program.end_input();
    server.wait_for_first_to_end();
    program.wait_for("relayed address ", PATIENCE);
    let output = program.output();
    let relayed = output.split("relayed address ").nth(1).and_then(|rest| rest.lines().next());
    let relayed: SocketAddr = relayed.expect("an address").parse().expect("an address");
    let caller = echo.recv_timeout(PATIENCE).expect("a caller");
    assert_eq!(caller, relayed, "the call left by the relayed address");

    upgrade(&mut server);
    let mut call = lab.connect(Host::Peer, relayed);
    call.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut back = call.try_clone().expect("a second handle");
    let is_enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let said = scope.spawn(|| say(&mut call, &is_enough));
        let heard = scope.spawn(|| hear(&mut back));
        {
            // Also if an upgrade fails.
            let _stop = Stop::at_end(&is_enough);
            upgrade_in_stream(&mut server);
        }
        assert_eq!(heard.join().expect("heard"), said.join().expect("said"));
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
