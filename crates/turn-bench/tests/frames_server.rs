//! Frames through a real server, to a peer that has frames too, each host a network namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use test_support::require;
use turn_bench::cpu::Watched;
use turn_bench::engine::{Bench, BenchOptions, Peer, PeerOptions};
use turn_bench::frames::{End, FrameEnds};
use turn_bench::outcome::Traffic;
use turn_bench::session::SessionOptions;
use turn_bench::traffic::{Backend, Direction, Shape, TrafficSpec};

use crate::links::Chain;
use crate::support::Server;

/// A machine with other things to do loses some on the way or hears of some too late.
fn nearly_all(traffic: &Traffic) -> bool {
    traffic.delivered <= traffic.sent && traffic.delivered * 10 >= traffic.sent * 9
}

const FLOWS: u32 = 7;

/// A peer that ends with this value.
struct Running {
    halt: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts one in the host of the calling thread.
    fn start(listen: &str, interface: &str) -> Self {
        let ends = Box::new(FrameEnds::open(interface, End::Peer, 1).unwrap());
        let options = PeerOptions { listen: listen.parse().unwrap(), threads: 1 };
        let peer = Peer::bind(&options, Some(ends)).unwrap();
        let halt = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&halt);
        let thread = Some(thread::spawn(move || peer.serve(&told, false).unwrap()));
        Self { halt, thread }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn spec(shape: Shape, direction: Direction) -> TrafficSpec {
    let (warm_up, duration) = (Duration::from_millis(200), Duration::from_millis(500));
    TrafficSpec { shape, direction, size: 200, rate: Some(3200), warm_up, duration }
}

#[test]
fn all_that_is_sent_through_a_server_arrives_whichever_way_it_goes() {
    let Some(chain) = require(Chain::new()) else { return };
    let Some(()) = require(chain.poll("server", &["to-client", "to-peer"])) else { return };
    let server = chain.within("server", || {
        let [relay, peer] = ["10.77.2.1", "10.77.2.2"].map(|text| text.parse().unwrap());
        // By sockets alone: between them and the kernel path a packet may overtake another.
        let sockets = "[offload]\nmode = 'off'\n";
        Server::start_at("10.77.1.1:3478".parse().unwrap(), relay, peer, sockets)
    });
    let _peer = chain.within("peer", || Running::start("10.77.2.2:9000", "to-server"));
    chain.within("client", || {
        let peer = "10.77.2.2:9000".parse().unwrap();
        let mut sessions = SessionOptions::new(server.address, Server::login(), peer);
        sessions.sessions = FLOWS;
        let (senders, receivers, watched) = (1, 1, Watched::default());
        let options = BenchOptions { sessions, senders, receivers, watched, quiet: true };
        let mut bench = Bench::open(&options).unwrap();
        // Two threads: each has some of the flows.
        bench.with_frames(Box::new(FrameEnds::open("to-server", End::Client, 2).unwrap()));
        for direction in [Direction::ClientToPeer, Direction::PeerToClient, Direction::Echo] {
            for shape in [Shape::Audio, Shape::Video] {
                let traffic = bench.run(&spec(shape, direction), FLOWS, Backend::Frames).unwrap();
                assert_eq!(traffic.backend, Backend::Frames);
                // 1600 are planned; a busy machine sends fewer.
                assert!(traffic.sent > 50, "{traffic:?}");
                assert!(nearly_all(&traffic), "{traffic:?}");
                let wrong = (traffic.duplicates, traffic.reordered, traffic.damaged);
                assert_eq!(wrong, (0, 0, 0), "{traffic:?}");
                assert!(traffic.latency.is_some_and(|latency| latency.p50 > 0), "{traffic:?}");

                // Sockets have the same sessions, and the same peer.
                let traffic = bench.run(&spec(shape, direction), FLOWS, Backend::Sockets).unwrap();
                assert_eq!(traffic.backend, Backend::Sockets);
                assert!(nearly_all(&traffic), "{traffic:?}");
            }
        }
        assert_eq!(bench.close(), 0);
    });
}
