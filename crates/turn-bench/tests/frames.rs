//! Frames on real links, each host a network namespace of its own.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use test_support::require;
use turn_bench::frames::{
    Forwarder, FrameFlow, Hop, Link, Mac, Pace, Port, SinkTally, Source, SourceRun, Watch, probe,
};

use crate::links::Chain;

const RUN: u32 = 11;
const SIZE: u16 = 200;
const FLOWS: u32 = 10;
const ALWAYS: Range<u64> = 0..u64::MAX;

/// Flows from one address to another, of which the MAC addresses are known.
fn flows(from: (Mac, &str), to: (Mac, &str), channels: bool) -> Vec<FrameFlow> {
    let address = |ip: &str, port: u16| SocketAddr::new(ip.parse().unwrap(), port);
    (0..FLOWS)
        .map(|number| FrameFlow {
            number,
            source_mac: from.0,
            destination_mac: to.0,
            source: address(from.1, 40_000 + number as u16),
            destination: address(to.1, 3478),
            channel: channels.then_some(0x4000 + number as u16),
        })
        .collect()
}

fn begin(source: &mut Source, burst: u32) {
    source
        .begin(&SourceRun { run: RUN, size: SIZE, burst, window: ALWAYS, pace: Pace::AT_ONCE })
        .unwrap();
}

fn watch(sink: &Port) {
    let watch = Watch { run: RUN, flows: FLOWS, size: SIZE, reflect: false, window: ALWAYS };
    sink.watch(&watch).unwrap();
}

/// Waits until a sink has counted all sent packets, for at most five seconds.
fn arrived(sink: &Port, sent: u64) -> SinkTally {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let tally = sink.tally().unwrap();
        if tally.delivered >= sent || Instant::now() > deadline {
            return tally;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_all(tally: &SinkTally, sent: u64) {
    assert_eq!((tally.delivered, tally.bytes), (sent, sent * u64::from(SIZE)));
    assert_eq!((tally.duplicates, tally.reordered, tally.damaged), (0, 0, 0));
    assert_eq!((tally.outside, tally.other_run), (0, 0));
    assert_eq!(tally.latency.len(), sent, "one clock");
    // More than nothing, less than the test took.
    assert!((1..5_000_000_000).contains(&tally.latency.max()), "{}", tally.latency.max());
}

/// Returns `true` when a socket of the server receives a datagram of the client.
fn hears(chain: &Chain, server: &str) -> bool {
    let ip: IpAddr = server.parse().unwrap();
    let receiver = chain.within("server", || UdpSocket::bind((ip, 0)).unwrap());
    let to = receiver.local_addr().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    chain.within("client", || {
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(any)
            .unwrap()
            .send_to(b"TpB\x01 an order that is not ours to take", to)
            .unwrap();
    });
    receiver.recv(&mut [0; 100]).is_ok()
}

#[test]
fn what_a_source_sends_a_sink_counts() {
    let Some(chain) = require(Chain::new()) else { return };
    let sink = chain.within("server", || Port::attach("to-client").unwrap());
    chain.within("client", || {
        let link = Link::read("to-server").unwrap();
        assert!(link.veth);
        probe(&link).unwrap();
        let port = Port::attach("to-server").unwrap();
        for (from, to) in [("10.77.1.2", "10.77.1.1"), ("fd77:1::2", "fd77:1::1")] {
            let next = link.next_hop(to.parse().unwrap()).unwrap();
            for channels in [false, true] {
                let flows = flows((link.mac, from), (next, to), channels);
                let mut source = port.source(&flows).unwrap();
                for burst in [1, 7] {
                    watch(&sink);
                    begin(&mut source, burst);
                    // Few enough at once for the link, over more than one turn, not in whole ones.
                    for _ in 0..10 {
                        source.inject(33).unwrap();
                    }
                    assert_eq!(source.made().unwrap().all, 330);
                    assert_all(&arrived(&sink, 330), 330);
                }
            }
        }
    });
}

#[test]
fn a_sink_lets_all_else_pass_and_leaves_the_link_as_it_was() {
    let Some(chain) = require(Chain::new()) else { return };
    let has_program = || chain.link_details("server", "to-client").contains("\"xdp\"");
    let sink = chain.within("server", || Port::attach("to-client").unwrap());
    watch(&sink);
    assert!(has_program());
    assert!(hears(&chain, "10.77.1.1") && hears(&chain, "fd77:1::1"));

    let busy = chain.within("server", || Port::attach("to-client").unwrap_err());
    assert!(busy.to_string().contains("another XDP program"), "{busy:#}");

    drop(sink);
    assert!(!has_program());
    assert!(hears(&chain, "10.77.1.1"));
}

#[test]
fn a_bare_forwarder_carries_frames_both_ways_and_an_echo_comes_back() {
    let Some(chain) = require(Chain::new()) else { return };
    let link = |host: &str, end: &str| chain.within(host, || Link::read(end).unwrap());
    let (at_client, at_peer) = (link("client", "to-server"), link("peer", "to-server"));
    let (client, peer) = (at_client.mac, at_peer.mac);
    let (near, far) = (link("server", "to-client").mac, link("server", "to-peer").mac);
    let _forwarder = chain.within("server", || {
        let a = Hop { interface: "to-client", own_mac: near, far_mac: client };
        let b = Hop { interface: "to-peer", own_mac: far, far_mac: peer };
        Forwarder::attach(a, b).unwrap()
    });
    let client_port = chain.within("client", || Port::attach("to-server").unwrap());
    let there = flows((client, "10.77.1.2"), (near, "10.77.1.1"), true);
    let mut source = client_port.source(&there).unwrap();

    // There.
    let peer_port = chain.within("peer", || Port::attach("to-server").unwrap());
    watch(&peer_port);
    begin(&mut source, 1);
    chain.within("client", || source.inject(60).unwrap());
    assert_all(&arrived(&peer_port, 60), 60);

    // From the other end.
    let back = flows((peer, "10.77.2.2"), (far, "10.77.2.1"), false);
    watch(&client_port);
    let mut far_source = peer_port.source(&back).unwrap();
    begin(&mut far_source, 1);
    chain.within("peer", || far_source.inject(60).unwrap());
    assert_all(&arrived(&client_port, 60), 60);

    // There and back.
    let echo = Watch { run: RUN, flows: FLOWS, size: SIZE, reflect: true, window: ALWAYS };
    peer_port.watch(&echo).unwrap();
    watch(&client_port);
    begin(&mut source, 1);
    chain.within("client", || source.inject(60).unwrap());
    assert_all(&arrived(&client_port, 60), 60);
}

#[test]
fn a_link_whose_other_end_takes_no_frames_is_named() {
    let Some(chain) = require(Chain::new()) else { return };
    chain.within("client", || {
        let link = Link::read("to-server").unwrap();
        let refused = probe(&link).unwrap_err().to_string();
        assert!(refused.contains("to-server") && refused.contains("gro on"), "{refused}");

        let refused = link.next_hop("127.0.0.1".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("not by to-server"), "{refused}");
        assert!(link.next_hop("192.0.2.1".parse().unwrap()).is_err(), "no route");
        assert!(Link::read("lo").unwrap_err().to_string().contains("no Ethernet"));
        assert!(Link::read("eth77").is_err());
    });
}
