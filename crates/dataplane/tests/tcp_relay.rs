//! TCP relays (RFC 6062), through workers on the real kernel.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use control::{Leg, Series, StreamEnd};
use dataplane::limits::PIPE_BYTES;
use stun_wire::{Message, Method};
use test_support::eventually;
use turn_proto::{PeerRefusal, Policy};

use crate::support::data::{Alice, Caller, code_of};
use crate::support::{LOCALHOST, PATIENCE, PEER, Start, World, policy, tls};

fn start() -> Start {
    Start { policy: Policy { tcp_relaying: true, ..policy() }, ..Start::default() }
}

fn world() -> World {
    World::start(start())
}

/// Returns servers with the addresses for clients: over TCP, and over TLS.
fn doors() -> [(World, SocketAddr); 2] {
    let plain = world();
    let secured = World::start(Start { tls: Some(tls::config()), ..start() });
    let (here, tunnel) = (plain.server, tls::tunnel(secured.server));
    [(plain, here), (secured, tunnel)]
}

/// Returns a peer that waits for connections.
fn listener() -> TcpListener {
    TcpListener::bind(SocketAddr::new(PEER, 0)).unwrap()
}

fn answer(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (peer, from) = listener.accept().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.set_write_timeout(Some(PATIENCE)).unwrap();
    (peer, from)
}

/// Returns bytes in which every neighbourhood is different.
fn noise(len: usize) -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::successors(Some(7_u32), |state| {
        let mut state = *state;
        next(&mut state).map(|_| state)
    })
    .map(|state| (state >> 24) as u8)
    .take(len)
    .collect()
}

/// Data connection of a client, and the peer's connection.
struct Pipe {
    alice: Alice,
    relayed: SocketAddr,
    data: Alice,
    peer: TcpStream,
}

impl Pipe {
    fn new(world: &World) -> Self {
        Self::to(world.server)
    }

    fn to(server: SocketAddr) -> Self {
        let (mut alice, relayed) = Alice::allocated(server);
        let listener = listener();
        let connection = alice.call(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = answer(&listener);
        let data = Alice::data(server, connection, b"");
        Self { alice, relayed, data, peer }
    }
}

#[test]
fn a_client_calls_a_peer_from_its_relayed_address() {
    // 6062-5.2-05, 6062-5.4-04
    let world = world();
    let (mut alice, relayed) = Alice::allocated(world.server);
    let listener = listener();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let (mut peer, from) = answer(&listener);
    assert_eq!(from, relayed);
    // Data after the request in the same segment, and the first data of the peer.
    peer.write_all(b"early").unwrap();
    let mut data = Alice::data(world.server, connection, b"pipelined");
    let mut heard = [0; 9];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"pipelined");
    assert_eq!(data.hear(5), b"early");
    let record = world.all_sessions().remove(0);
    assert_eq!((record.connections, record.traffic.to_peer_bytes), (1, 9));
    world.assert_adds_up();
}

#[test]
fn much_goes_both_ways_at_once() {
    // 6062-5.4-04
    for (world, server) in doors() {
        carries_much(&world, server);
    }
}

fn carries_much(world: &World, server: SocketAddr) {
    let bytes = noise(200_000);
    let (mut alice, _) = Alice::allocated(server);
    let listener = listener();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = answer(&listener);
    let mut speaker = peer.try_clone().unwrap();
    let (said, pipelined) = (bytes.clone(), bytes.clone());
    let speaking = std::thread::spawn(move || {
        speaker.write_all(&said).unwrap();
        speaker.shutdown(Shutdown::Write).unwrap();
    });
    let mut client = Alice::connect(server);
    let request = client.bind_request(connection);
    let mut writer = client.socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        writer.write_all(&[&request[..], &pipelined].concat()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = vec![0; bytes.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == bytes, "to the peer");
    assert_eq!(code_of(&client.read()), None);
    assert!(client.hear_all() == bytes, "to the client");
    speaking.join().unwrap();
    writing.join().unwrap();
    eventually("both ends are told", || {
        world.count(Series::StreamsEnded(StreamEnd::DataDone)) == 1
    });
    assert_eq!(world.count(Series::PipedBytes(Leg::ToClients)), 200_000);
    assert_eq!(world.count(Series::PipedBytes(Leg::ToPeers)), 200_000);
    world.assert_adds_up();
}

/// Busy pipes, most of which wait for later iterations.
#[test]
fn pipes_that_wait_lose_nothing() {
    for (world, server) in doors() {
        let bytes = noise(300_000);
        let mut pipes: Vec<_> = (0..16).map(|_| Pipe::to(server)).collect();
        let hold = world.hold();
        let speakers: Vec<_> = pipes
            .iter()
            .map(|pipe| {
                let mut ends = [pipe.peer.try_clone(), pipe.data.socket.try_clone()];
                let said = bytes.clone();
                std::thread::spawn(move || {
                    for end in &mut ends {
                        end.as_mut().unwrap().write_all(&said).unwrap();
                    }
                })
            })
            .collect();
        drop(hold);
        for pipe in &mut pipes {
            assert!(pipe.data.hear(bytes.len()) == bytes, "to the client");
            let mut heard = vec![0; bytes.len()];
            pipe.peer.read_exact(&mut heard).unwrap();
            assert!(heard == bytes, "to the peer");
        }
        speakers.into_iter().for_each(|speaker| speaker.join().unwrap());
        world.assert_adds_up();
    }
}

#[test]
fn a_permitted_peer_calls() {
    // 6062-5.1-04, 6062-5.3-02
    let world = world();
    let (mut alice, relayed) = Alice::allocated(world.server);
    alice.permit(PEER);
    let peer = Caller::call(PEER, relayed);
    peer.say(b"before anybody hears");
    let (from, connection) = alice.attempt();
    assert_eq!(from, peer.addr());
    let mut data = Alice::data(world.server, connection, b"");
    assert_eq!(data.hear(20), b"before anybody hears");
    data.socket.write_all(b"I hear").unwrap();
    data.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.hear_all(), b"I hear");
    peer.say(b"and I");
    peer.end();
    assert_eq!(data.hear_all(), b"and I");
    assert_eq!(world.count(Series::ConnectionAttempts), 1);
    world.assert_adds_up();
}

#[test]
fn a_stranger_is_sent_away() {
    // 6062-5.3-01
    let world = world();
    let (mut alice, relayed) = Alice::allocated(world.server);
    let stranger = Caller::call(PEER, relayed);
    assert_eq!(stranger.hear_all(), b"");
    assert_eq!(world.count(Series::PeersRefused(PeerRefusal::NoPermission)), 1);
    assert_eq!(world.count(Series::PeersLive), 0);
    // The client receives no indication about the refused peer.
    alice.permit(PEER);
    world.assert_adds_up();
}

#[test]
fn who_does_not_answer_the_call_is_told() {
    // 6062-5.2-06
    let world = world();
    let (mut alice, _) = Alice::allocated(world.server);
    let nobody = listener().local_addr().unwrap();
    assert_eq!(alice.call(nobody), Err(447));
    assert_eq!(alice.call(SocketAddr::new(LOCALHOST, 80)), Err(403));
    assert_eq!(world.count(Series::PeersLive), 0);
    world.assert_adds_up();
}

#[test]
fn what_comes_before_the_bind_waits_in_the_kernel() {
    // 6062-5.2-08
    let world = world();
    let (mut alice, _) = Alice::allocated(world.server);
    let listener = listener();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = answer(&listener);
    let bytes = noise(16 << 20);
    let early = bytes.clone();
    peer.set_nonblocking(true).unwrap();
    let mut said = 0;
    let mut idle = 0;
    // The peer can write until the buffers of both kernels are full.
    while idle < 50 {
        match peer.write(&early[said..]) {
            Ok(len) => (said, idle) = (said + len, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                idle += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    assert!((1_000_000..bytes.len()).contains(&said), "{said}: the window closes");
    assert_eq!(world.count(Series::PipedBytes(Leg::FromPeers)), 0, "nothing is kept here");
    peer.set_nonblocking(false).unwrap();
    let speaking = std::thread::spawn(move || {
        peer.write_all(&early[said..]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        peer
    });
    let mut data = Alice::data(world.server, connection, b"");
    assert!(data.hear_all() == bytes);
    drop(speaking.join().unwrap());
    world.assert_adds_up();
}

#[test]
fn who_takes_nothing_makes_the_other_wait() {
    // 6062-5.2-08
    let world = world();
    let Pipe { alice: _alice, mut data, mut peer, .. } = Pipe::new(&world);
    let bytes = noise(16 << 20);
    let mut writer = data.socket.try_clone().unwrap();
    let said = bytes.clone();
    let writing = std::thread::spawn(move || writer.write_all(&said).unwrap());
    let read = || world.count(Series::PipedBytes(Leg::FromClients));
    let mut before = u64::MAX;
    eventually("it comes to rest", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = read();
        now == std::mem::replace(&mut before, now) && now > 0
    });
    let kept = read() - world.count(Series::PipedBytes(Leg::ToPeers));
    assert!(kept > 0 && kept <= 2 * PIPE_BYTES as u64, "{kept}");
    assert!(!writing.is_finished());
    let mut heard = vec![0; bytes.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == bytes);
    writing.join().unwrap();

    let mut writer = peer.try_clone().unwrap();
    let said = bytes.clone();
    let writing = std::thread::spawn(move || writer.write_all(&said).unwrap());
    let read = || world.count(Series::PipedBytes(Leg::FromPeers));
    let mut before = u64::MAX;
    eventually("it comes to rest", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = read();
        now == std::mem::replace(&mut before, now) && now > 0
    });
    assert!(read() < bytes.len() as u64 && !writing.is_finished());
    assert!(data.hear(bytes.len()) == bytes);
    writing.join().unwrap();
    world.assert_adds_up();
}

#[test]
fn one_end_may_go_on_when_the_other_has_said_all() {
    // 6062-5.5-02
    for (world, server) in doors() {
        ends_by_halves(&world, server);
    }
}

fn ends_by_halves(world: &World, server: SocketAddr) {
    let Pipe { alice: _alice, mut data, mut peer, .. } = Pipe::to(server);
    data.socket.write_all(b"the last of it").unwrap();
    data.socket.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"the last of it");
    peer.write_all(b"one more").unwrap();
    assert_eq!(data.hear(8), b"one more");
    peer.write_all(b"and the end").unwrap();
    drop(peer);
    assert_eq!(data.hear_all(), b"and the end");

    let Pipe { alice: _alice, mut data, mut peer, .. } = Pipe::to(server);
    peer.write_all(b"the last of it").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(data.hear_all(), b"the last of it");
    data.socket.write_all(b"one more").unwrap();
    drop(data);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"one more");
    eventually("both have gone", || world.count(Series::PeersLive) == 0);
    assert_eq!(world.count(Series::StreamsEnded(StreamEnd::DataDone)), 2);
    // A peer that has closed its connection can be connected again.
    assert!(world.all_sessions().iter().all(|record| record.connections == 0));
    world.assert_adds_up();
}

#[test]
fn all_that_was_said_before_the_end_comes_before_it() {
    // 6062-5.5-02
    for (world, server) in doors() {
        let read = || world.count(Series::PipedBytes(Leg::FromPeers));
        let at_rest = |what, begun| {
            let mut before = u64::MAX;
            eventually(what, || {
                std::thread::sleep(Duration::from_millis(20));
                let now = read();
                now == std::mem::replace(&mut before, now) && now > begun
            });
        };
        // Measures the capacity of the path to a client that reads nothing.
        let Pipe { alice: _alice, data: _data, peer, .. } = Pipe::to(server);
        let _speaking = said_by(peer, noise(16 << 20));
        at_rest("the way is full", 0);
        let room = read() as usize;
        // So the connection ends while bytes wait at any point of the path.
        for less in (0..48).map(|step| step * 4096) {
            let before = read();
            let Pipe { alice: _alice, mut data, peer, .. } = Pipe::to(server);
            let bytes = noise(room - less);
            let speaking = said_by(peer, bytes.clone());
            at_rest("it is full, or all is said", before);
            let heard = data.hear_all();
            assert_eq!(heard.len(), bytes.len(), "{less} less than there is room for");
            assert!(heard == bytes);
            speaking.join().unwrap();
        }
        world.assert_adds_up();
    }
}

/// Sends these bytes, and closes the sending direction.
fn said_by(mut peer: TcpStream, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        // Writing without a reader fails.
        let _ = peer.write_all(&bytes);
        let _ = peer.shutdown(Shutdown::Write);
    })
}

#[test]
fn a_break_is_passed_on_as_one() {
    // 6062-5.5-02
    let world = world();
    let Pipe { alice: _alice, data, mut peer, .. } = Pipe::new(&world);
    peer.write_all(b"unheard").unwrap();
    eventually("it is there", || world.count(Series::PipedBytes(Leg::ToClients)) == 7);
    // Closing with unread bytes sends a reset.
    drop(data);
    let ended = peer.read(&mut [0; 9]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);

    let Pipe { alice: _alice, mut data, peer, .. } = Pipe::new(&world);
    data.socket.write_all(b"unheard").unwrap();
    eventually("it is there", || world.count(Series::PipedBytes(Leg::ToPeers)) == 7);
    drop(peer);
    let ended = data.socket.read(&mut [0; 9]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    eventually("both have gone", || world.count(Series::PeersLive) == 0);
}

#[test]
fn the_end_of_the_allocation_is_the_end_of_its_data() {
    // 6062-5.5-01, 6062-4.1-01
    let ends: [fn(Alice) -> Option<Alice>; 2] = [
        |mut alice| {
            let answer = alice.ask(Method::REFRESH, |builder| {
                builder.lifetime(0);
            });
            assert_eq!(code_of(&answer), None);
            Some(alice)
        },
        |alice| {
            drop(alice);
            None
        },
    ];
    for end in ends {
        let world = world();
        let Pipe { mut alice, relayed, mut data, mut peer } = Pipe::new(&world);
        let waiting = listener();
        alice.call(waiting.local_addr().unwrap()).unwrap();
        let (mut unbound, _) = answer(&waiting);
        let _kept = end(alice);
        assert_eq!(data.hear_all(), b"");
        for peer in [&mut peer, &mut unbound] {
            assert_eq!(peer.read(&mut [0; 9]).unwrap(), 0);
        }
        eventually("all is gone", || world.count(Series::PeersLive) == 0);
        let refused = TcpStream::connect(relayed).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn several_peers_of_one_allocation() {
    let world = world();
    let (mut alice, relayed) = Alice::allocated(world.server);
    alice.permit(PEER);
    let listeners = [listener(), listener()];
    let mut pipes = Vec::new();
    for listener in &listeners {
        let connection = alice.call(listener.local_addr().unwrap()).unwrap();
        let (peer, from) = answer(listener);
        assert_eq!(from, relayed);
        pipes.push((Alice::data(world.server, connection, b""), peer));
    }
    // Another peer connects in the meantime.
    let caller = Caller::call(PEER, relayed);
    let (_, connection) = alice.attempt();
    let mut third = Alice::data(world.server, connection, b"to the third");
    for (place, (data, peer)) in pipes.iter_mut().enumerate() {
        data.socket.write_all(&[place as u8; 10]).unwrap();
        let mut heard = [9; 10];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(heard, [place as u8; 10]);
    }
    caller.say(b"to alice");
    assert_eq!(third.hear(8), b"to alice");
    drop(third);
    assert_eq!(caller.hear_all(), b"to the third");
    assert_eq!(world.all_sessions()[0].permissions, 1);
    world.assert_adds_up();
}

#[test]
fn a_connection_whose_bind_is_refused_goes_on() {
    // 6062-5.4-02
    let world = world();
    let (mut alice, _) = Alice::allocated(world.server);
    let listener = listener();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let mut data = Alice::connect(world.server);
    let wrong = data.bind_request(connection ^ 1);
    let right = data.bind_request(connection);
    // Numbers of other workers' connections are unknown at this worker.
    let elsewhere = data.bind_request(connection ^ 1 << 31);
    data.socket.write_all(&[&wrong[..], &elsewhere, &right, b"data"].concat()).unwrap();
    let codes = [data.read(), data.read(), data.read()].map(|answer| code_of(&answer));
    assert_eq!(codes, [Some(400), Some(400), None]);
    let (mut peer, _) = answer(&listener);
    let mut heard = [0; 4];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"data");
    world.assert_adds_up();
}

#[test]
fn a_data_connection_is_taken_to_the_worker_of_its_peer() {
    are_taken(start(), |world| world.server);
    let secured = Start { tls: Some(tls::config()), ..start() };
    are_taken(secured, |world| tls::tunnel(world.server));
}

fn are_taken(start: Start, door: fn(&World) -> SocketAddr) {
    let mut worlds = World::start_many(start, 2);
    let (there, here) = (worlds.pop().unwrap(), worlds.pop().unwrap());
    for (home, arrival) in [(&here, &there), (&there, &here), (&there, &there)] {
        let (mut alice, _) = Alice::allocated(door(home));
        let listener = listener();
        let connection = alice.call(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = answer(&listener);
        let bytes = noise(200_000);
        peer.write_all(b"early").unwrap();
        let mut data = Alice::data(door(arrival), connection, b"pipelined");
        assert_eq!(data.hear(5), b"early");
        let mut writer = data.socket.try_clone().unwrap();
        let said = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&said).unwrap());
        let mut heard = vec![0; 9 + bytes.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == [&b"pipelined"[..], &bytes].concat());
        writing.join().unwrap();
        assert_eq!(home.count(Series::StreamsLive), 2, "both are the owner's");
        drop(alice);
        assert_eq!(data.hear_all(), b"");
        eventually("all is gone", || home.count(Series::StreamsLive) == 0);
    }
    assert_eq!(there.count(Series::StreamsLive) + here.count(Series::StreamsLive), 0);
    // A connection that another worker has refused remains at that worker, and can be used further.
    let mut lost = Alice::connect(door(&here));
    let refused = lost.bind_request(1 << 22);
    lost.socket.write_all(&refused).unwrap();
    assert_eq!(code_of(&lost.read()), Some(400));
    let answer = lost.ask(Method::ALLOCATE, |builder| {
        builder.requested_transport(6);
    });
    assert_eq!(code_of(&answer), None);
    assert_eq!((here.all_sessions().len(), there.all_sessions().len()), (0, 1));
    assert!(Message::parse(&answer).is_ok());
}

#[test]
fn a_rate_is_kept_by_waiting() {
    let mut start = start();
    start.policy.quotas.bytes_per_second = 100_000;
    let world = World::start(start);
    let Pipe { alice: _alice, mut data, mut peer, .. } = Pipe::new(&world);
    let bytes = noise(250_000);
    let begun = Instant::now();
    let mut writer = data.socket.try_clone().unwrap();
    let said = bytes.clone();
    let writing = std::thread::spawn(move || writer.write_all(&said).unwrap());
    let mut heard = vec![0; bytes.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == bytes, "slower, and all of it");
    assert!(begun.elapsed() >= Duration::from_millis(800), "a second's worth at once, not all");
    writing.join().unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(data.hear(1), b"x", "the other way has its own");
}
