//! Hostile traffic to a real server on the loopback.

use std::time::Duration;

use lab_net::RawUdpSocket;
use turn_bench::cpu::Watched;
use turn_bench::engine::{Bench, BenchOptions};
use turn_bench::outcome::{Hostile, Outcome};
use turn_bench::requests::{Call, HostileSpec, Variant, run_hostile};
use turn_bench::session::SessionOptions;
use turn_bench::text;
use turn_bench::traffic::{Backend, Direction, Shape, TrafficSpec};

use crate::support::{Peer, Server};

/// No rate limit of unauthenticated responses.
const OPEN_HANDED: &str = "[quotas]\nunauthenticated_responses_per_second = 0";

fn spec(server: &Server, variant: Variant) -> HostileSpec {
    HostileSpec {
        variant,
        server: server.address,
        local: None,
        bystander: None,
        login: Server::login(),
        sources: "127.200.0.0/16".parse().unwrap(),
        rate: Some(2000),
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(500),
    }
}

fn run(server: &Server, variant: Variant) -> Hostile {
    let hostile = run_hostile(&spec(server, variant), &Watched::default(), None).unwrap();
    assert!(hostile.sent > 0 && hostile.sent_bytes >= hostile.sent, "{hostile:?}");
    // A fixed rate is kept, as far as the machine can.
    assert!(hostile.sent + hostile.refused <= 1000, "{hostile:?}");
    hostile
}

fn assert_others_get_through(hostile: &Hostile) {
    let probe = &hostile.probe;
    assert_eq!((probe.started, probe.succeeded, &probe.failed), (5, 5, &vec![]), "{hostile:?}");
}

#[test]
fn garbage_gets_no_answers() {
    let server = Server::start(OPEN_HANDED);
    let hostile = run(&server, Variant::Garbage);
    assert_eq!((hostile.answers, hostile.answer_bytes), (0, 0));
    assert_others_get_through(&hostile);
}

#[test]
fn unauthenticated_requests_are_answered_and_counted() {
    let server = Server::start(OPEN_HANDED);
    for variant in [Variant::Unauthenticated, Variant::Integrity] {
        let hostile = run(&server, variant);
        assert!(hostile.answers > 0 && hostile.answers <= hostile.sent, "{hostile:?}");
        assert!(hostile.amplification() > 0.0);
        assert_others_get_through(&hostile);
    }
}

#[test]
fn a_limit_of_answers_is_seen() {
    let server = Server::start("[quotas]\nunauthenticated_responses_per_second = 50");
    let hostile =
        run_hostile(&spec(&server, Variant::Unauthenticated), &Watched::default(), None).unwrap();
    assert!(hostile.answers < hostile.sent / 2, "{hostile:?}");
}

#[test]
fn answers_to_forged_addresses_are_counted() {
    if let Err(error) = RawUdpSocket::open(std::net::Ipv4Addr::LOCALHOST) {
        return test_support::skip(format!("forging addresses wants CAP_NET_RAW: {error}"));
    }
    let server = Server::start(OPEN_HANDED);
    let hostile = run(&server, Variant::Spoofed);
    assert!(hostile.answers > 0 && hostile.answers <= hostile.sent, "{hostile:?}");
    assert_others_get_through(&hostile);
}

#[test]
fn hellos_that_carry_a_cookie_begin_handshakes() {
    let server = Server::start_secure("");
    let hostile = run(&server, Variant::Dtls);
    assert!(hostile.answers > 0, "no handshake was begun: {hostile:?}");
    assert_others_get_through(&hostile);
}

#[test]
fn a_call_is_measured_before_and_during_an_attack() {
    let server = Server::start(OPEN_HANDED);
    let peer = Peer::start();
    let sessions = SessionOptions {
        receive_buffer: 4 << 20,
        sessions: 2,
        ..SessionOptions::new(server.address, Server::login(), peer.address)
    };
    let bench = BenchOptions {
        sessions,
        senders: 1,
        receivers: 1,
        watched: Watched::default(),
        quiet: true,
    };
    let HostileSpec { warm_up, duration, .. } = spec(&server, Variant::Garbage);
    let mut call = Call {
        bench: Bench::open(&bench).unwrap(),
        spec: TrafficSpec {
            shape: Shape::Audio,
            direction: Direction::ClientToPeer,
            size: 200,
            rate: Some(1000),
            warm_up,
            duration,
        },
        flows: 2,
        backend: Backend::Sockets,
    };
    let spec = spec(&server, Variant::Garbage);
    let hostile = run_hostile(&spec, &Watched::default(), Some(&mut call)).unwrap();
    call.bench.close();
    let measured = hostile.call.as_deref().unwrap();
    for traffic in [&measured.quiet, &measured.attacked] {
        assert!(traffic.sent > 0 && traffic.delivered > 0, "{traffic:?}");
        assert!(traffic.latency.is_some(), "{traffic:?}");
    }
    let text = text::of(&Outcome::Hostile(hostile));
    assert!(text.contains("call before") && text.contains("call during"), "{text}");
}
