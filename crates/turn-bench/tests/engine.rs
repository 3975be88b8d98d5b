//! Traffic through a real server on the loopback, to a real peer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use turn_bench::cpu::Watched;
use turn_bench::engine::{Bench, BenchOptions, FindMaxSpec};
use turn_bench::outcome::Traffic;
use turn_bench::session::SessionOptions;
use turn_bench::traffic::{Backend, Direction, Shape, TrafficSpec, Transport};

use crate::support::{Delay, Peer, Server, TRANSPORTS, free_address};

const DIRECTIONS: [Direction; 3] =
    [Direction::ClientToPeer, Direction::PeerToClient, Direction::Echo];

fn open(server: &Server, peer: SocketAddr, sessions: u32) -> Bench {
    open_over(Transport::Udp, server, peer, sessions)
}

fn open_over(transport: Transport, server: &Server, peer: SocketAddr, sessions: u32) -> Bench {
    let mut options = SessionOptions::new(server.address, Server::login(), peer);
    (options.transport, options.sessions) = (transport, sessions);
    options.receive_buffer = 4 << 20;
    let (senders, receivers, watched) = (2, 2, Watched::default());
    Bench::open(&BenchOptions { sessions: options, senders, receivers, watched, quiet: true })
        .unwrap()
}

fn spec(shape: Shape, direction: Direction, rate: Option<u32>) -> TrafficSpec {
    let (warm_up, duration) = (Duration::from_millis(100), Duration::from_millis(500));
    TrafficSpec { shape, direction, size: 200, rate, warm_up, duration }
}

fn all_arrived(traffic: &Traffic) {
    assert!(traffic.sent > 0, "{traffic:?}");
    // A machine with other things to do hears of some too late.
    assert!(traffic.delivered <= traffic.sent, "{traffic:?}");
    assert!(traffic.delivered * 10 >= traffic.sent * 9, "{traffic:?}");
    let wrong = (traffic.duplicates, traffic.reordered, traffic.damaged, traffic.refused);
    assert_eq!(wrong, (0, 0, 0, 0), "{traffic:?}");
    // The whole schedule, but for skipped packets.
    let scheduled = f64::from(traffic.spec.rate.unwrap()) * traffic.spec.duration.as_secs_f64();
    let left_out = scheduled * traffic.behind;
    // A sender that was late at one end of the measured time has some more or some less in it.
    let (sent, burst) = (traffic.sent as f64, f64::from(traffic.spec.shape.burst()));
    assert!((sent + left_out - scheduled).abs() <= 2.0 * burst + scheduled / 10.0, "{traffic:?}");
    assert!(traffic.latency.is_some_and(|latency| latency.p50 > 0), "{traffic:?}");
}

#[test]
fn at_a_modest_rate_everything_arrives_whichever_way_it_goes() {
    let (server, peer) = (Server::start_secure(""), Peer::start());
    for transport in TRANSPORTS {
        let mut bench = open_over(transport, &server, peer.address, 5);
        for direction in DIRECTIONS {
            for shape in [Shape::Audio, Shape::Video, Shape::Flood] {
                let spec = spec(shape, direction, Some(3200));
                let traffic = bench.run(&spec, 5, Backend::Sockets).unwrap();
                assert_eq!(traffic.transport, transport);
                all_arrived(&traffic);
            }
        }
        assert_eq!(bench.close(), 0);
    }
}

/// Answers that belong to an earlier announcement of the run arrive all the time.
#[test]
fn a_peer_at_the_end_of_a_long_way_takes_part() {
    let (server, peer) = (Server::start(""), Peer::start());
    let way = Delay::start(peer.address, Duration::from_millis(70));
    let mut bench = open(&server, way.address, 1);
    for direction in DIRECTIONS {
        let spec = spec(Shape::Audio, direction, Some(100));
        let traffic = bench.run(&spec, 1, Backend::Sockets).unwrap();
        assert!(traffic.delivered > 0, "{traffic:?}");
    }
}

#[test]
fn whoever_sends_too_much_over_a_stream_is_held_back_and_the_next_run_is_none_the_worse() {
    let (server, peer) = (Server::start_secure(""), Peer::start());
    for transport in [Transport::Tcp, Transport::Tls] {
        let mut bench = open_over(transport, &server, peer.address, 4);
        // No multiple of four bytes: all is padded.
        let flood = TrafficSpec { size: 1201, ..spec(Shape::Flood, Direction::ClientToPeer, None) };
        let flat_out = bench.run(&flood, 4, Backend::Sockets).unwrap();
        assert!(flat_out.held_back() > 0.0 && flat_out.delivered > 0, "{flat_out:?}");
        assert!(flat_out.delivered <= flat_out.sent, "{flat_out:?}");
        let wrong = (flat_out.duplicates, flat_out.reordered, flat_out.damaged);
        assert_eq!(wrong, (0, 0, 0), "{flat_out:?}");
        for direction in DIRECTIONS {
            let modest = spec(Shape::Audio, direction, Some(1000));
            all_arrived(&bench.run(&modest, 4, Backend::Sockets).unwrap());
        }
        let frames = bench.run(&flood, 4, Backend::Frames).unwrap_err().to_string();
        assert!(frames.contains("frames of UDP alone"), "{frames}");
    }
}

#[test]
fn a_run_may_be_of_fewer_flows_and_of_packets_as_long_as_messages() {
    let (server, peer) = (Server::start(""), Peer::start());
    let mut bench = open(&server, peer.address, 3);
    for flows in [1, 3, 2] {
        for direction in DIRECTIONS {
            // Merged with messages of the same length on the way.
            let spec = TrafficSpec { size: 144, ..spec(Shape::Video, direction, Some(1000)) };
            let traffic = bench.run(&spec, flows, Backend::Sockets).unwrap();
            assert_eq!(traffic.flows, flows);
            all_arrived(&traffic);
        }
    }
    let error = bench.run(&spec(Shape::Audio, Direction::Echo, None), 4, Backend::Sockets);
    assert!(error.is_err(), "four flows over three sessions");
}

#[test]
fn what_is_too_much_is_lost_and_counted_and_the_next_run_is_none_the_worse() {
    // Each way an allocation passes 64 KiB at once and as much in a second: less than 500 packets
    // of a run, however fast the machine is.
    let tables = "[quotas]\nbytes_per_second = \"64 KiB\"\n";
    let (server, peer) = (Server::start(tables), Peer::start());
    let mut bench = open(&server, peer.address, 4);
    for direction in DIRECTIONS {
        let flood = TrafficSpec { size: 1200, ..spec(Shape::Flood, direction, None) };
        let flat_out = bench.run(&flood, 4, Backend::Sockets).unwrap();
        assert!(flat_out.sent > 1000, "{flat_out:?}");
        assert!((1..flat_out.sent / 2).contains(&flat_out.delivered), "{flat_out:?}");
        assert_eq!((flat_out.duplicates, flat_out.damaged), (0, 0), "{flat_out:?}");
        let modest = spec(Shape::Audio, direction, Some(200));
        all_arrived(&bench.run(&modest, 4, Backend::Sockets).unwrap());
    }
}

#[test]
fn a_search_ends_with_a_rate_that_is_delivered() {
    let (server, peer) = (Server::start_secure(""), Peer::start());
    for transport in TRANSPORTS {
        let mut bench = open_over(transport, &server, peer.address, 2);
        let traffic = spec(Shape::Audio, Direction::ClientToPeer, None);
        let step = Duration::from_millis(100);
        let search = FindMaxSpec { traffic, loss_max: 0.05, step, near: None, rate_max: None };
        let found = bench.find_max(&search, 2, Backend::Sockets).unwrap();
        assert!(found.confirmed.delivered > 0, "{found:?}");
        assert_eq!(found.confirmed.spec.duration, traffic.duration);
        let last = found.points.last().unwrap();
        assert!(last.offered > 0.0 && last.delivered <= last.offered, "{found:?}");
    }
}

#[test]
fn a_peer_that_is_not_there_is_told_with_what_to_do() {
    let server = Server::start("");
    let mut bench = open(&server, free_address(), 2);
    let spec = spec(Shape::Audio, Direction::ClientToPeer, Some(100));
    let said = format!("{:#}", bench.run(&spec, 2, Backend::Sockets).unwrap_err());
    assert!(said.contains("turnpike-bench peer --listen"), "{said}");
}

#[test]
fn a_peer_that_was_started_again_serves_the_next_run() {
    let server = Server::start("");
    let first = Peer::start();
    let mut bench = open(&server, first.address, 2);
    let spec = spec(Shape::Audio, Direction::Echo, Some(500));
    all_arrived(&bench.run(&spec, 2, Backend::Sockets).unwrap());
    let listen = first.address;
    drop(first);
    let peer = turn_bench::engine::Peer::bind(
        &turn_bench::engine::PeerOptions { listen, threads: 1 },
        None,
    )
    .unwrap();
    let halt = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| peer.serve(&halt, false).unwrap());
        let traffic = bench.run(&spec, 2, Backend::Sockets);
        halt.store(true, Ordering::Relaxed);
        all_arrived(&traffic.unwrap());
    });
}
