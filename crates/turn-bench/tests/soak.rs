//! Clients that come and go by every transport, for as long as is asked for: nothing of them stays.
//!
//! A few rounds in a run of all tests; `cargo xtask soak --minutes N` makes more of them.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_support::eventually;
use turn_bench::session::{self, Session, SessionOptions};
use turn_bench::traffic::Transport;

use crate::support::{Server, TRANSPORTS};

/// Clients at the same time.
const CLIENTS: u32 = 50;

/// Rounds without a time that is asked for.
const ROUNDS: u32 = 2;

/// Rounds after which caches, buffers and tables are allocated.
const WARM_UP: u32 = 2;

/// Growth of resident memory that is no leak: one round's buffers that the allocator keeps or not.
const GROWTH_KIB_MAX: u64 = 16 << 10;

/// Resources of an idle server.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    resident_kib: u64,
}

impl Held {
    fn by(server: &Server) -> Self {
        let process = format!("/proc/{}", server.pid());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            descriptors: fs::read_dir(format!("{process}/fd")).unwrap().count(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}

/// Sends one datagram of each client to the peer, which answers it.
fn exchange(sessions: &[Session], peer: &UdpSocket) {
    for session in sessions {
        let mut message = [0; 100];
        let written = session.client.write_channel_data(&mut message, session.channel, b"soak");
        assert!(session.wire.send(&message[..written.unwrap()]).unwrap());
        let mut payload = [0; 100];
        let (len, from) = peer.recv_from(&mut payload).unwrap();
        assert_eq!((&payload[..len], from), (&b"soak"[..], session.relayed));
        peer.send_to(&payload[..len], from).unwrap();
    }
}

/// One round: clients of each transport open, exchange, and go. Connections are broken off in every
/// other round, as by clients that crash.
fn round(number: u32, options: &mut SessionOptions, peer: &UdpSocket) {
    for transport in TRANSPORTS {
        options.transport = transport;
        let sessions =
            session::open(options).unwrap_or_else(|error| panic!("{transport:?}: {error:#}"));
        exchange(&sessions, peer);
        let is_connection = !matches!(transport, Transport::Udp | Transport::Dtls);
        if is_connection && number % 2 == 1 {
            drop(sessions);
        } else {
            assert_eq!(session::close(sessions), 0, "not confirmed");
        }
    }
}

/// Waits until the server is idle.
fn wait_until_idle(server: &Server) {
    let live = |status: &Value, what: &str| status[what]["live"].as_u64();
    eventually("no allocation, connection or association is left", || {
        let status: Value = serde_json::from_str(&server.ask(&["status", "--json"])).unwrap();
        ["allocations", "connections", "associations"]
            .iter()
            .all(|what| live(&status, what).unwrap_or(0) == 0)
    });
}

#[test]
fn nothing_stays_of_clients_that_came_and_went() {
    let minutes = std::env::var("SOAK_MINUTES").ok().map(|text| text.parse::<f64>().unwrap());
    let until = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
    let server = Server::start_secure(
        "[quotas]\nallocations_per_user = 0\nnew_peers_per_second = 0\n\
         [dtls]\nsessions_per_address = 0\n[tcp]\nconnections_per_address = 0",
    );
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut options =
        SessionOptions::new(server.address, Server::login(), peer.local_addr().unwrap());
    options.sessions = CLIENTS;
    let mut before = None;
    let mut number = 0;
    while number < WARM_UP + ROUNDS || until.is_some_and(|until| Instant::now() < until) {
        round(number, &mut options, &peer);
        assert!(server.ask(&["reload"]).contains("nothing"), "a reload of what is in force");
        number += 1;
        if number == WARM_UP {
            wait_until_idle(&server);
            before = Some(Held::by(&server));
        }
        if number % 100 == 0 {
            println!(
                "{number} rounds of {CLIENTS} clients by each transport: {:?}",
                Held::by(&server)
            );
        }
    }
    wait_until_idle(&server);
    let before: Held = before.unwrap();
    // The connection of the last question may still be open at the server.
    eventually(&format!("no more descriptors than before: {before:?}"), || {
        Held::by(&server).descriptors <= before.descriptors
    });
    let after = Held::by(&server);
    println!("{number} rounds: {before:?} before, {after:?} after");
    let growth = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(growth <= GROWTH_KIB_MAX, "{before:?}, then {after:?}");
}
