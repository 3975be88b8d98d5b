//! Clients that connect through a load balancer with the PROXY protocol.

use std::io::{Read as _, Write as _};

use control::{Series, StreamEnd, StreamRefusal};
use dataplane::ConnectionLimits;
use test_support::eventually;

use crate::support::end::End;
use crate::support::stream::{StreamUser, framed};
use crate::support::{PEER, Start, World};

const CLIENT: &str = "192.0.2.77:4660";
const LINE: &[u8] = b"PROXY TCP4 192.0.2.77 198.51.100.2 4660 3478\r\n";

fn world(per_address: u32) -> World {
    limited(ConnectionLimits { total: 0, per_address })
}

fn limited(limits: ConnectionLimits) -> World {
    let proxies = vec!["127.0.0.0/8".parse().unwrap()];
    World::start(Start { limits, proxies, ..Start::default() })
}

#[test]
fn the_client_is_who_the_load_balancer_says() {
    for size in [1, 7, LINE.len()] {
        let world = world(0);
        let mut alice = StreamUser::connect(world.server);
        for piece in LINE.chunks(size) {
            alice.write(piece);
        }
        alice.allocate();
        assert_eq!(world.all_sessions()[0].five_tuple.client.0.to_string(), CLIENT);
        let mapped = alice.client.allocation().unwrap().mapped;
        assert_eq!(mapped.to_string(), CLIENT);
    }
}

#[test]
fn who_says_nothing_of_it_is_not_served() {
    let world = world(0);
    let mut alice = StreamUser::connect(world.server);
    alice.write(&[0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    // The connection is closed, with or without a reset.
    assert_eq!(alice.socket.read(&mut [0; 64]).unwrap_or(0), 0);
    eventually("counted", || world.count(Series::StreamsEnded(StreamEnd::NoProxyHeader)) == 1);
}

/// A balancer may send the header with the first data of a client, and a client may send nothing.
#[test]
fn who_is_not_named_makes_room() {
    let world = limited(ConnectionLimits { total: 20, per_address: 1000 });
    let silent: Vec<_> =
        (0..20).map(|_| StreamUser::connect_from([127, 1, 1, 1], world.server)).collect();
    eventually("they have all", || world.count(Series::StreamsLive) == 20);
    eventually("one makes room", || {
        let mut alice = StreamUser::connect_from([127, 2, 1, 1], world.server);
        let request = [0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        // The server may close the connection earlier.
        let _ = alice.socket.write_all(&[LINE, &request].concat());
        alice.socket.read(&mut [0; 64]).is_ok_and(|len| len > 0)
    });
    assert!(world.count(Series::StreamsEnded(StreamEnd::CrowdedOut)) > 0);
    drop(silent);
}

#[test]
fn a_header_of_an_unlisted_sender_is_named() {
    let version_2: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x4d\xc6\x33\x64\x02\x12\x34\x0d\x96";
    for header in [LINE, version_2] {
        let world = World::new();
        let mut alice = StreamUser::connect(world.server);
        alice.write(header);
        assert_eq!(alice.socket.read(&mut [0; 64]).unwrap_or(0), 0, "closed without an answer");
        eventually("counted", || world.count(Series::StreamsEnded(StreamEnd::ProxyNotListed)) == 1);
    }
}

#[test]
fn places_are_counted_for_who_is_behind_it() {
    let world = world(1);
    let mut first = StreamUser::connect(world.server);
    first.write(LINE);
    first.allocate();
    let mut second = StreamUser::connect(world.server);
    second.write(LINE);
    assert_eq!(second.socket.read(&mut [0; 64]).unwrap_or(0), 0, "the same client");
    assert_eq!(world.count(Series::StreamsRefused(StreamRefusal::Address)), 1);
    let mut other = StreamUser::connect(world.server);
    other.write(b"PROXY TCP4 192.0.2.78 198.51.100.2 4660 3478\r\n");
    other.allocate();
}

/// A client's port connects to two addresses of the load balancer, for example through a NAT that
/// keeps ports.
#[test]
fn connections_to_different_addresses_of_the_load_balancer_do_not_meet() {
    let world = world(0);
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::connect(world.server);
    alice.write(LINE);
    alice.allocate();
    let channel = alice.bind_channel(peer.addr());
    let mut bob = StreamUser::connect(world.server);
    bob.write(b"PROXY TCP4 192.0.2.77 198.51.100.3 4660 3478\r\n");
    bob.allocate();
    let mut servers: Vec<_> =
        world.all_sessions().iter().map(|s| s.five_tuple.server.to_string()).collect();
    servers.sort();
    assert_eq!(servers, ["198.51.100.2:3478", "198.51.100.3:3478"]);
    // Bob has no channel: his data with Alice's number is dropped.
    bob.write(&framed(channel, b"not hers"));
    alice.write(&framed(channel, b"hers"));
    let said = peer.receive();
    assert_eq!((&said.bytes[..], said.from), (&b"hers"[..], alice.relayed()));
    drop(bob);
    eventually("he is gone", || world.all_sessions().len() == 1);
    alice.write(&framed(channel, b"still here"));
    assert_eq!(peer.receive().bytes, b"still here");
}

/// Two connections have equal addresses. Two load balancers may know different clients by one
/// address, or the server has not yet detected the end of a connection.
#[test]
fn a_connection_of_the_same_addresses_replaces_the_one_before() {
    let world = world(0);
    let mut peer = End::at(PEER);
    let mut before = StreamUser::connect(world.server);
    before.write(LINE);
    before.allocate();
    let mut after = StreamUser::connect(world.server);
    after.write(LINE);
    after.allocate();
    // Bytes of the first connection are not attributed to the second connection.
    assert_eq!(before.read(), None);
    eventually("counted", || world.count(Series::StreamsEnded(StreamEnd::Replaced)) == 1);
    drop(before);
    let channel = after.bind_channel(peer.addr());
    after.write(&framed(channel, b"here"));
    assert_eq!(peer.receive().bytes, b"here");
    assert_eq!(world.all_sessions().len(), 1);
}
