//! The protocol of a peer, over real sockets.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::engine::clock::{self, ClockId};
use crate::engine::control::{Body, LEN, Message, Refusal};
use crate::engine::plan::Plan;
use crate::packet::Header;
use crate::traffic::{Direction, Shape, TrafficSpec};

const RUN: u32 = 77;

/// Runs `test` against a peer, with a socket that sends to it.
fn with_peer(test: impl FnOnce(&UdpSocket)) {
    let options = PeerOptions { listen: "127.0.0.1:0".parse().unwrap(), threads: 2 };
    let peer = Peer::bind(&options, None).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(peer.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let halt = AtomicBool::new(false);
    threads::scope(|scope| {
        scope.spawn(|| peer.serve(&halt, false).unwrap());
        // Ends the peer also when the test fails.
        let _ended = Halting(&halt);
        test(&socket);
    });
}

struct Halting<'a>(&'a AtomicBool);

impl Drop for Halting<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn say(socket: &UdpSocket, body: Body) {
    socket.send(&Message { run: RUN, body }.encode()).unwrap();
}

fn hear(socket: &UdpSocket) -> Body {
    let mut bytes = [0; 2000];
    let len = socket.recv(&mut bytes).unwrap();
    assert_eq!(len, LEN, "no answer is longer than its question");
    let message = Message::decode(&bytes[..len]).unwrap();
    assert_eq!(message.run, RUN);
    message.body
}

fn hear_among_packets(socket: &UdpSocket) {
    let mut bytes = [0; 2000];
    loop {
        let len = socket.recv(&mut bytes).unwrap();
        if Message::is_one(&bytes[..len]) {
            return;
        }
    }
}

fn ask(socket: &UdpSocket, body: Body) -> Body {
    say(socket, body);
    hear(socket)
}

fn challenge(socket: &UdpSocket) -> u64 {
    let answer = ask(socket, Body::Hello { flow: 0, token: 0 });
    let Body::Challenge { flow: 0, token } = answer else { panic!("{answer:?}") };
    token
}

fn plan(direction: Direction) -> Plan {
    let spec = TrafficSpec {
        shape: Shape::Audio,
        direction,
        size: 200,
        rate: Some(1000),
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(3600),
    };
    Plan::new(RUN, &spec, 1, clock::now())
}

fn start(direction: Direction) -> Body {
    Body::Start { plan: plan(direction), clock: ClockId::own() }
}

fn packet(sequence: u32) -> Vec<u8> {
    let header = Header { run: RUN, flow: 0, sequence, sent: clock::now() };
    let mut payload = header.encode().to_vec();
    payload.resize(200, 0);
    payload
}

#[test]
fn an_address_without_proof_gets_no_packets() {
    with_peer(|socket| {
        let token = challenge(socket);
        for order in [start(Direction::PeerToClient), Body::Query { number: 1 }] {
            assert_eq!(ask(socket, order), Body::Refused { reason: Refusal::Unknown });
        }
        let wrong = ask(socket, Body::Hello { flow: 0, token: token ^ 2 });
        assert_eq!(wrong, Body::Challenge { flow: 0, token });
        // Not echoed: the next that comes is the answer to the question behind it.
        socket.send(&packet(0)).unwrap();
        assert_eq!(challenge(socket), token);
    });
}

#[test]
fn packets_come_back_until_the_run_is_stopped() {
    with_peer(|socket| {
        let token = challenge(socket);
        for _ in 0..2 {
            let welcome = ask(socket, Body::Hello { flow: 0, token });
            assert_eq!(welcome, Body::Welcome { flow: 0 }, "also when asked again");
        }
        let order = start(Direction::Echo);
        let Body::Start { plan, .. } = order else { unreachable!() };
        for _ in 0..2 {
            let clock = ClockId::own();
            assert_eq!(ask(socket, order), Body::Started { plan, clock });
        }
        let sent = packet(0);
        socket.send(&sent).unwrap();
        let mut bytes = [0; 2000];
        let len = socket.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..len], sent);
        let answer = ask(socket, Body::Query { number: 3 });
        let Body::Report { number: 3, report } = answer else { panic!("{answer:?}") };
        assert_eq!((report.delivered, report.damaged), (1, 0));
        assert!(report.latency.is_some(), "one clock");
        say(socket, Body::Stop);
        let refused = ask(socket, Body::Query { number: 4 });
        assert_eq!(refused, Body::Refused { reason: Refusal::Unknown });
    });
}

#[test]
fn sending_ends_when_the_flow_begins_another_run() {
    with_peer(|socket| {
        let token = challenge(socket);
        ask(socket, Body::Hello { flow: 0, token });
        assert!(matches!(ask(socket, start(Direction::PeerToClient)), Body::Started { .. }));
        let mut bytes = [0; 2000];
        let len = socket.recv(&mut bytes).unwrap();
        let first = Header::decode(&bytes[..len]).unwrap();
        assert_eq!((len, first.run, first.sequence), (200, RUN, 0));
        // The other run; packets in flight are of the first.
        let hello = Message { run: RUN + 1, body: Body::Hello { flow: 0, token } };
        socket.send(&hello.encode()).unwrap();
        hear_among_packets(socket);
        let stopped = Message { run: RUN + 1, body: Body::Query { number: 1 } };
        socket.send(&stopped.encode()).unwrap();
        hear_among_packets(socket);
        // A thousand packets would come in this time.
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let late = std::iter::from_fn(|| socket.recv(&mut bytes).ok()).take(500).count();
        assert!(late < 500, "it goes on sending");
    });
}

#[test]
fn runs_that_are_too_long_or_of_unknown_flows_are_refused() {
    with_peer(|socket| {
        let token = challenge(socket);
        ask(socket, Body::Hello { flow: 0, token });
        let two = Plan { flows: 2, ..plan(Direction::PeerToClient) };
        let clock = ClockId::own();
        let refused = ask(socket, Body::Start { plan: two, clock });
        assert_eq!(refused, Body::Refused { reason: Refusal::Unknown });
        let mut long = plan(Direction::PeerToClient);
        let none = Plan { flows: 0, ..plan(Direction::PeerToClient) };
        for duration in [Duration::from_secs(100_000), Duration::MAX] {
            long.spec.duration = duration;
            for plan in [long, none] {
                let refused = ask(socket, Body::Start { plan, clock });
                assert_eq!(refused, Body::Refused { reason: Refusal::Unable });
            }
        }
    });
}
