//! Each strategy relays, to whom it should and nothing else; on the loopback, at a modest pace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use clap::ValueEnum as _;
use linux_net::{Clock, RxBatch, UdpOptions};
use test_support::skip;

use super::generator::{Generator, GeneratorSockets, Load, Measured};
use super::limit::Limit;
use super::place::{Cores, Place};
use super::protocol::SessionId;
use super::relay::{Relay, RelaySockets, Tally};
use super::strategy::Strategy;
use super::{Bench, LabOptions, middle};
use crate::cpu::{Meters, Watched};
use crate::outcome::{Lab, LabRow};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const THREADS: usize = 2;

/// Runs `test` with a relay of each strategy that this machine lets run.
fn with_each(test: impl Fn(Strategy, Relay)) {
    for strategy in Strategy::value_variants() {
        if let Err(reason) = strategy.available() {
            skip(format!("{strategy}: {reason}"));
            continue;
        }
        let sockets = RelaySockets::open(LOCALHOST, THREADS, *strategy).unwrap();
        test(*strategy, Relay::start(*strategy, sockets, None).unwrap());
    }
}

/// What arrives next. Whoever stops the process for a moment ends the wait, and that is no fault.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> std::io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(datagram) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// A client that is registered.
fn client(relay: SocketAddr, id: SessionId) -> UdpSocket {
    let client = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(&id.0, relay).unwrap();
    let mut answer = [0; 64];
    let (len, from) = receive(&client, &mut answer).unwrap();
    assert_eq!((&answer[..len], from), (&id.0[..], relay), "a registration is answered by its id");
    client
}

#[test]
fn every_packet_arrives_at_its_client_and_those_of_strangers_are_dropped() {
    const SESSIONS: u32 = 100;
    const ROUNDS: u8 = 20;
    with_each(|strategy, relay| {
        let ids: Vec<SessionId> = (0..SESSIONS).map(SessionId::of_number).collect();
        let clients: Vec<UdpSocket> =
            ids.iter().map(|id| client(relay.registration, *id)).collect();
        // Several peers, so that the kernel spreads them over the relay's threads.
        let peers: Vec<UdpSocket> =
            (0..8).map(|_| UdpSocket::bind((LOCALHOST, 0)).unwrap()).collect();
        for round in 0..ROUNDS {
            let payload = |session: usize| [&ids[session].0[..], &[round; 40]].concat();
            // Before others from the same peer, so that these are read when those have arrived.
            peers[0].send_to(&[9; 48], relay.data).unwrap();
            peers[0].send_to(&[9; 7], relay.data).unwrap();
            for session in 0..clients.len() {
                let peer = &peers[(session + usize::from(round)) % peers.len()];
                peer.send_to(&payload(session), relay.data).unwrap();
            }
            for (session, client) in clients.iter().enumerate() {
                let mut datagram = [0; 64];
                let (len, from) = receive(client, &mut datagram).unwrap();
                assert_eq!(datagram[..len], payload(session), "{strategy}: of session {session}");
                assert_eq!(from, relay.data, "{strategy}");
            }
        }
        let forwarded = u64::from(SESSIONS) * u64::from(ROUNDS);
        let unknown = 2 * u64::from(ROUNDS);
        let sockets: Vec<_> = relay.sockets.iter().map(|one| one.try_clone().unwrap()).collect();
        assert_eq!(relay.stop().unwrap(), Tally { forwarded, unknown, refused: 0 }, "{strategy}");
        assert!(sockets.iter().all(|one| one.dropped().unwrap() == 0), "{strategy}");
        for client in clients {
            client.set_nonblocking(true).unwrap();
            assert!(client.recv(&mut [0; 64]).is_err(), "{strategy}: more than was sent");
        }
    });
}

#[test]
fn a_client_that_registers_again_is_reached_at_its_new_address() {
    with_each(|strategy, relay| {
        let id = SessionId::of_number(3);
        let old = client(relay.registration, id);
        let peer = UdpSocket::bind((LOCALHOST, 0)).unwrap();
        let send = |tag: u8| {
            let datagram = [&id.0[..], &[tag]].concat();
            peer.send_to(&datagram, relay.data).unwrap();
        };
        let arrives = |at: &UdpSocket, tag: u8| {
            let mut datagram = [0; 64];
            receive(at, &mut datagram).is_ok_and(|(len, _)| datagram[..len].ends_with(&[tag]))
        };
        send(1);
        assert!(arrives(&old, 1), "{strategy}");
        let new = client(relay.registration, id);
        // A thread that knows the old address learns the new one at its next look at the mailbox.
        new.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!((0..100).any(|_| {
            send(2);
            arrives(&new, 2)
        }));
        relay.stop().unwrap();
    });
}

#[test]
fn what_the_generator_sends_it_counts_as_delivered() {
    with_each(|strategy, relay| {
        let sockets = GeneratorSockets::open(LOCALHOST, 20).unwrap();
        sockets.register(relay.registration).unwrap();
        let now = Clock::instant().as_nanos();
        let measured = Measured { begin: now + 20_000_000, end: now + 220_000_000 };
        let load = Load { size: 300, burst: 10, window: 100, run: 5 };
        let generator =
            Generator::start(sockets, relay.data, load, measured, &[None, None]).unwrap();
        let counted = generator.finish().unwrap();
        let relayed = relay.stop().unwrap();
        assert!(counted.sent > 0, "{strategy}");
        // On a busy machine some come too late to count.
        assert!(0 < counted.delivered && counted.delivered <= counted.sent, "{strategy}");
        assert_eq!(counted.latency.len(), counted.delivered, "{strategy}");
        let trouble = (counted.again, counted.misdirected, counted.damaged, counted.refused);
        assert_eq!(trouble, (0, 0, 0, 0), "{strategy}");
        // Those of the warm-up were relayed as well.
        assert!(relayed.forwarded >= counted.delivered, "{strategy}");
        assert_eq!((relayed.unknown, relayed.refused), (0, 0), "{strategy}");
    });
}

#[test]
fn a_burst_is_what_a_session_sends_in_one_turn_and_no_longer() {
    for burst in [1, 10] {
        let (sink, _) =
            linux_net::UdpSocket::bind((LOCALHOST, 0).into(), &UdpOptions::default()).unwrap();
        let sockets = GeneratorSockets::open(LOCALHOST, 5).unwrap();
        let now = Clock::instant().as_nanos();
        let measured = Measured { begin: now, end: now + 50_000_000 };
        // Room for several turns of each session at once.
        let load = Load { size: 100, burst, window: 200, run: 1 };
        let generator =
            Generator::start(sockets, sink.local_addr(), load, measured, &[None]).unwrap();
        generator.finish().unwrap();
        let mut rx = RxBatch::new(32);
        let mut bursts = Vec::new();
        while rx.recv(&sink).unwrap() > 0 {
            bursts.extend((0..rx.len()).map(|index| rx.message(index).segments().count()));
        }
        assert!(!bursts.is_empty());
        assert!(bursts.iter().all(|packets| *packets == burst as usize), "{burst}: {bursts:?}");
    }
}

#[test]
fn the_run_in_the_middle_is_shown_and_knows_the_others() {
    let row = |delivered| LabRow {
        strategy: "lock".to_owned(),
        sent: delivered,
        refused: 0,
        delivered,
        again: 0,
        damaged: 0,
        relay_drops: 0,
        client_drops: 0,
        latency: None,
        cores: Vec::new(),
        limit: Limit::RelayCpu,
        rounds: Vec::new(),
    };
    let second = Duration::from_secs(1);
    let shown = middle(vec![row(300), row(100), row(200)], second).unwrap();
    assert_eq!((shown.delivered, shown.rounds), (200, vec![300.0, 100.0, 200.0]));
    assert_eq!(middle(Vec::new(), second), None);
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    options: LabOptions,
}

fn options(words: &[&str]) -> LabOptions {
    use clap::Parser as _;
    Line::try_parse_from([&["lab"], words].concat()).unwrap().options
}

/// Runs it on the first core, which others may share: without meters, which want a core alone.
fn lab(words: &[&str]) -> Lab {
    let core = linux_net::allowed_cores().unwrap()[0];
    let cores = Cores { relay: vec![core], generator: vec![core] };
    let more = ["--sessions", "10", "--seconds", "0.1", "--quiet"];
    let options = options(&[words, &more].concat());
    let lab = Bench::new(&options, cores)
        .unwrap()
        .run(&mut Meters::start(&Watched::default()).unwrap())
        .unwrap();
    assert_eq!(lab.rows.len(), 2);
    for row in &lab.rows {
        assert!(row.delivered > 0 && row.delivered <= row.sent, "{row:?}");
        assert_eq!((row.damaged, row.again), (0, 0), "{row:?}");
        assert_eq!(row.rounds.len(), usize::from(options.rounds));
        assert!(row.latency.is_some());
    }
    lab
}

#[test]
fn a_lab_on_the_loopback_measures_what_was_asked_for() {
    let words = ["--loopback", "--strategy", "gro-gso", "--strategy", "per-thread"];
    let lab = lab(&[&words[..], &["--rounds", "1", "--shape", "audio"]].concat());
    assert_eq!(lab.place, "the loopback (as asked)");
    let strategies: Vec<_> = lab.rows.iter().map(|row| row.strategy.as_str()).collect();
    assert_eq!(strategies, ["per-thread", "gro-gso"]);
}

#[test]
fn a_lab_with_namespaces_measures_and_leaves_nothing_behind() {
    if let Place::Loopback(reason) = Place::make(&Cores { relay: vec![0], generator: vec![0] }) {
        return skip(reason);
    }
    let words = ["--strategy", "lock", "--strategy", "batched", "--rounds", "2"];
    assert_eq!(lab(&words).place, "a link between two network namespaces");
    // The names of devices are of this namespace: those of the lab's were never here.
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("lab0"), "{devices}");
}

#[test]
fn the_generator_says_when_nobody_answers() {
    let nobody = UdpSocket::bind((LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let sockets = GeneratorSockets::open(LOCALHOST, 1).unwrap();
    let said = thread::spawn(move || sockets.register(nobody).unwrap_err().to_string());
    assert!(said.join().unwrap().contains("does not answer"));
}
