//! Export of all clients to the successor, with an answer to each waiting request.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use control::{Series, StreamEnd};
use stun_wire::{AttributeType, Method};
use test_support::eventually;
use turn_proto::Policy;

use crate::support::data::{Alice, code_of};
use crate::support::{PATIENCE, PEER, Start, World, policy, tls};

/// RFC 6062 §5.2: the backlog of the peer is full.
#[test]
fn a_connect_in_flight_is_refused_and_its_client_leaves() {
    let world = World::start(Start {
        policy: Policy { tcp_relaying: true, ..policy() },
        ..Start::default()
    });
    let listener = TcpListener::bind((PEER, 0)).unwrap();
    let full = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&full, Duration::from_millis(200)).ok();
    let waiting: Vec<TcpStream> = (0..10_000).map_while(connect).collect();
    assert!(waiting.len() < 10_000, "it is never full");
    let (mut alice, _) = Alice::allocated(world.server);
    let request = alice.request(Method::CONNECT, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, full);
    });
    alice.socket.write_all(&request).unwrap();
    eventually("it is being opened", || world.count(Series::PeersLive) == 1);
    let left = world.channels.export().unwrap();
    let counts = (
        left[0].snapshot.streams.len(),
        left[0].snapshot.peers.len(),
        left[0].snapshot.allocations.len(),
    );
    assert_eq!(counts, (1, 0, 1), "{left:?}");
    world.channels.roll_back();
    assert_eq!(code_of(&alice.read()), Some(447));
    alice.permit(PEER);
    world.channels.export().unwrap();
    world.channels.commit();
    eventually("nothing is left", || {
        world.count(Series::StreamsLive) == 0 && world.totals().allocations_live() == 0
    });
}

/// Both directions of the pipe have ended, and bytes remain unread because of the allocation's
/// bandwidth limit.
#[test]
fn a_pipe_with_unread_bytes_behind_both_ends_leaves() {
    let mut policy = Policy { tcp_relaying: true, ..policy() };
    policy.quotas.bytes_per_second = 50_000;
    let world = World::start(Start { policy, ..Start::default() });
    let (mut alice, _) = Alice::allocated(world.server);
    let listener = TcpListener::bind((PEER, 0)).unwrap();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut data = Alice::data(world.server, connection, b"");
    data.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    let bytes = vec![7; 100_000];
    peer.write_all(&bytes).unwrap();
    drop(peer);
    let left = world.channels.export().unwrap();
    let (streams, peers) = (&left[0].snapshot.streams, &left[0].snapshot.peers);
    assert_eq!((streams.len(), peers.len()), (2, 1));
    assert!(peers[0].remote.is_none(), "{peers:?}");
    world.channels.roll_back();
    assert!(data.hear_all() == bytes);
}

#[test]
fn a_request_that_waits_for_its_user_is_served_by_whoever_serves_next() {
    let world = World::new();
    let mut alice = Alice::connect(world.server);
    let allocate = alice.request(Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    let refresh = alice.request(Method::REFRESH, |_| ());
    *world.directory.is_silent.lock().unwrap() = true;
    let binding = alice.request(Method::BINDING, |_| ());
    let (half, rest) = binding.split_at(binding.len() / 2);
    alice.socket.write_all(&[&allocate, &refresh, half].concat()).unwrap();
    eventually("both wait", || world.directory.asked.lock().unwrap().len() == 2);
    for _ in 0..2 {
        let left = world.channels.export().unwrap();
        assert_eq!(left[0].snapshot.streams.len(), 1);
        world.channels.roll_back();
    }
    *world.directory.is_silent.lock().unwrap() = false;
    world.channels.export().unwrap();
    world.channels.roll_back();
    let answers = [alice.read(), alice.read()].map(|answer| code_of(&answer));
    assert_eq!(answers, [None, None], "in their order: a Refresh alone would be refused");
    assert_eq!(world.all_sessions().len(), 1);
    alice.socket.write_all(rest).unwrap();
    assert_eq!(code_of(&alice.read()), None);
}

/// A handshake has no exportable state.
#[test]
fn a_tls_handshake_ends_when_another_process_serves() {
    let world = World::start(Start { tls: Some(tls::config()), ..Start::default() });
    let mut client = TcpStream::connect(world.server).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    // An incomplete ClientHello.
    client.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    eventually("it is accepted", || world.count(Series::StreamsLive) == 1);
    // The worker reads before the response to this request.
    world.totals();
    let left = world.channels.export().unwrap();
    assert_eq!(left[0].snapshot.streams.len(), 0);
    world.channels.commit();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    assert_eq!((heard[0], &heard[5..]), (21, &[1, 0][..]), "close_notify");
    let ended = Series::StreamsEnded(StreamEnd::Shutdown);
    eventually("it is counted", || world.count(ended) == 1);
}
