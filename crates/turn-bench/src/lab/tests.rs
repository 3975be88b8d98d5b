//! Strategies relay to the right client and nothing else; runs on the loopback and in namespaces.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use clap::Parser as _;
use test_support::skip;

use super::generator::key;
use super::relay::{Clients, Counts, open};
use super::*;
use crate::outcome::LabLimit;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `test` with a relay of each strategy that this machine can run.
fn with_each(clients: &Clients, test: impl Fn(Strategy, Relay)) {
    for strategy in Strategy::value_variants() {
        if let Err(reason) = strategy.available() {
            skip(format!("{strategy}: {reason}"));
            continue;
        }
        let (sockets, _) = open(LOCALHOST, 2, *strategy).unwrap();
        test(*strategy, Relay::start(*strategy, sockets, clients, None).unwrap());
    }
}

/// The kernel frees an io_uring some time after the last descriptor is closed, and then interrupts
/// the thread that opened it.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(datagram) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

#[test]
fn every_packet_arrives_at_its_client_and_unknown_ones_are_dropped() {
    const SESSIONS: u32 = 50;
    let receivers: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        })
        .collect();
    let entry =
        |(session, socket): (u32, &UdpSocket)| (key(1, session), socket.local_addr().unwrap());
    let clients: Clients = (0..).zip(&receivers).map(entry).collect();
    with_each(&clients, |strategy, relay| {
        // Several peers, so that the kernel spreads them over the relay's threads.
        let peers: Vec<_> = (0..8).map(|_| UdpSocket::bind((LOCALHOST, 0)).unwrap()).collect();
        for round in 0..10_u8 {
            let packet = |session| [&[0; 4][..], &key(1, session), &[round; 40]].concat();
            peers[0].send_to(&[9; 48], relay.data).unwrap();
            peers[0].send_to(&[9; 7], relay.data).unwrap();
            for session in 0..SESSIONS {
                let peer = &peers[(session as usize + usize::from(round)) % peers.len()];
                peer.send_to(&packet(session), relay.data).unwrap();
            }
            for (session, client) in (0..).zip(&receivers) {
                let mut datagram = [0; 64];
                let (len, from) = receive(client, &mut datagram);
                assert_eq!(datagram[..len], packet(session), "{strategy}: of session {session}");
                assert_eq!(from, relay.data, "{strategy}");
            }
        }
        let forwarded = u64::from(SESSIONS) * 10;
        let expected = Counts { forwarded, unknown: 20, refused: 0 };
        assert_eq!(relay.stop().unwrap(), expected, "{strategy}");
    });
}

#[test]
fn the_median_run_is_shown_with_the_rates_of_all() {
    let row = |delivered| LabRow { delivered, ..LabRow::new("lock", LabLimit::RelayCpu) };
    let second = Duration::from_secs(1);
    let shown = median_run(vec![row(300), row(100), row(200)], second).unwrap();
    assert_eq!((shown.delivered, shown.rounds), (200, vec![300.0, 100.0, 200.0]));
    assert_eq!(median_run(Vec::new(), second), None);
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    args: LabArgs,
}

/// Runs a lab on the first core, which others may share: without meters, which want a core alone.
fn lab(words: &[&str]) -> Lab {
    let core = linux_net::allowed_cores().unwrap()[0];
    let cores = Cores { relay: vec![core], generator: vec![core] };
    let more = ["--sessions", "10", "--seconds", "0.1", "--quiet"];
    let args = Line::try_parse_from([&["lab"], words, &more].concat()).unwrap().args;
    let mut meters = Meters::start(&Watched::default()).unwrap();
    let mut run = || Bench::new(&args, cores.clone()).unwrap().run(&mut meters).unwrap();
    let mut lab = run();
    // A busy machine may have no time for the generator: that measures nothing.
    while lab.rows.iter().any(|row| row.sent == 0) {
        lab = run();
    }
    assert_eq!(lab.rows.len(), 2);
    for row in &lab.rows {
        assert!(row.delivered > 0 && row.delivered <= row.sent, "{row:?}");
        assert_eq!((row.damaged, row.again, row.rounds.len()), (0, 0, usize::from(args.rounds)));
        assert!(row.latency.is_some());
    }
    lab
}

#[test]
fn a_lab_on_the_loopback_measures_the_requested_strategies() {
    let words = ["--loopback", "--strategy", "gro-gso", "--strategy", "per-thread"];
    let lab = lab(&[&words[..], &["--rounds", "1", "--shape", "audio"]].concat());
    assert_eq!(lab.place, "the loopback (as requested)");
    let strategies: Vec<_> = lab.rows.iter().map(|row| row.strategy.as_str()).collect();
    assert_eq!(strategies, ["per-thread", "gro-gso"]);
}

#[test]
fn a_lab_with_namespaces_leaves_nothing_behind() {
    if let Place::Loopback(reason) = Place::make(&Cores { relay: vec![0], generator: vec![0] }) {
        return skip(reason);
    }
    let words = ["--strategy", "lock", "--strategy", "batched", "--rounds", "2"];
    assert_eq!(lab(&words).place, "a link between two network namespaces");
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("lab0"), "{devices}");
}
