//! Clients over TCP, through a worker on the real kernel.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::support;

use control::{Series, StreamEnd, StreamRefusal};
use dataplane::ConnectionLimits;
use dataplane::limits::{
    INPUT_PER_TURN, MESSAGES_PER_READ, OWN_CONNECTIONS_BEYOND_LIMITS, SOCKETS_PER_TURN,
    STREAM_BACKLOG_BYTES,
};
use stun_wire::ChannelNumber;
use test_support::eventually;
use turn_client::AllocateOptions;
use turn_proto::{DropReason, EndReason};
use turn_session::RECORDS_PER_TAKE;

use crate::support::end::End;
use crate::support::stream::{StreamUser, framed};
use crate::support::{LOCALHOST, LOCALHOST_V6, PATIENCE, PEER, Start, World, tls};

#[test]
fn channel_data_of_any_length_goes_both_ways_padded() {
    // 8656-12.5-03
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::allocated(world.server);
    let channel = alice.bind_channel(peer.addr());
    for len in (0..=8).chain([1199, 1200, 9000]) {
        let data = vec![len as u8; len];
        alice.write(&framed(channel, &data));
        let heard = peer.receive();
        assert_eq!((heard.from, heard.bytes), (alice.relayed(), data.clone()));
        peer.send(alice.relayed(), &data);
        assert_eq!(alice.hear(), (Some(channel), data));
    }
    world.assert_adds_up();
}

#[test]
fn messages_are_found_however_they_are_cut() {
    // 8489-6.2.2-01
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::allocated(world.server);
    let channel = alice.bind_channel(peer.addr());
    let datas: Vec<Vec<u8>> = (1..40_u8).map(|n| vec![n; usize::from(n)]).collect();
    let bytes: Vec<u8> = datas.iter().flat_map(|data| framed(channel, data)).collect();
    for size in [1, 3, 7, bytes.len()] {
        for piece in bytes.chunks(size) {
            alice.write(piece);
        }
        let heard: Vec<_> =
            peer.receive_many(datas.len()).into_iter().map(|heard| heard.bytes).collect();
        assert_eq!(heard, datas, "in pieces of {size}");
    }
    world.assert_adds_up();
}

/// Returns a Binding request.
fn binding(number: u8) -> [u8; 20] {
    let mut request = [number; 20];
    request[..8].copy_from_slice(&[0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42]);
    request
}

#[test]
fn requests_need_not_wait_for_answers() {
    // 8489-6.2.2-02, 8489-12-01
    for listen in [LOCALHOST, LOCALHOST_V6] {
        let world = World::start(Start { listen, ..Start::default() });
        let mut alice = StreamUser::connect(world.server);
        let requests: Vec<u8> = (0..20).flat_map(binding).collect();
        alice.write(&requests);
        for number in 0..20 {
            let answer = alice.read().unwrap();
            assert_eq!((&answer[..2], answer[8]), (&[1, 1][..], number));
        }
        world.assert_adds_up();
    }
}

/// Packets of other clients are served between the messages of a client that sends many messages.
#[test]
fn a_turn_serves_so_many_messages_of_a_connection() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::allocated(world.server);
    let channel = alice.bind_channel(peer.addr());
    let datas: Vec<_> = (0..3 * MESSAGES_PER_READ).map(|n| n.to_be_bytes().to_vec()).collect();
    let hold = world.hold();
    alice.write(&datas.iter().flat_map(|data| framed(channel, data)).collect::<Vec<_>>());
    let before = world.turns();
    drop(hold);
    let heard: Vec<_> =
        peer.receive_many(datas.len()).into_iter().map(|heard| heard.bytes).collect();
    assert_eq!(heard, datas);
    assert!(world.turns() - before >= 3, "{} turns", world.turns() - before);
    world.assert_adds_up();
}

/// A request in records of one byte costs more than a hundred requests without TLS.
#[test]
fn a_turn_serves_so_many_records_of_a_connection() {
    let world = World::start(Start { tls: Some(tls::config()), ..Start::default() });
    let mut alice = tls::secured(world.server);
    alice.get_ref().set_nonblocking(false).unwrap();
    let hold = world.hold();
    let requests = 32;
    for number in 0..requests {
        for byte in binding(number) {
            alice.write_all(&[byte]).unwrap();
        }
    }
    let before = world.turns();
    drop(hold);
    for number in 0..requests {
        let mut answer = [0; 32];
        alice.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[..2], answer[8]), (&[1, 1][..], number));
    }
    let least = u64::from(requests) * 20 / RECORDS_PER_TAKE as u64 / 2;
    let turns = world.turns() - before;
    assert!(turns >= least, "{turns} turns of {least}");
    world.assert_adds_up();
}

/// Connections of one client with input in every iteration do not delay other clients' connections.
#[test]
fn who_sends_little_is_served_before_who_sends_much() {
    // Shares per address, then per connection.
    for per_address in [1000, 0] {
        little_is_served_before_much(ConnectionLimits { total: 0, per_address });
    }
}

fn little_is_served_before_much(limits: ConnectionLimits) {
    let world = World::start(Start { limits, ..Start::default() });
    let mut peer = End::at(PEER);
    let users = |address, count| -> Vec<_> {
        let user = |_| {
            let mut user = StreamUser::connect_from(address, world.server);
            user.allocate();
            let channel = user.bind_channel(peer.addr());
            (user, channel)
        };
        (0..count).map(user).collect()
    };
    let (mut crowd, mut alone) =
        (users([127, 0, 9, 1], 2 * SOCKETS_PER_TURN), users([127, 0, 8, 1], 1));
    // Only one of the messages served together is for an existing channel, so no datagram is lost.
    let without_channel = framed(ChannelNumber::new(0x4FFE).unwrap(), b"none");
    for (user, channel) in &mut crowd {
        let others = without_channel.repeat(MESSAGES_PER_READ as usize - 1);
        user.write(&[framed(*channel, b"many"), others].concat().repeat(8));
    }
    // After some iterations all of these connections wait.
    let begun = world.turns();
    eventually("they are seen", || world.turns() > begun + 8);
    let hold = world.hold();
    while !peer.is_quiet() {
        peer.receive();
    }
    let (alice, channel) = &mut alone[0];
    alice.write(&framed(*channel, b"one!"));
    drop(hold);
    let before = (0..).take_while(|_| peer.receive().bytes == b"many").count();
    let of_a_turn = INPUT_PER_TURN / MESSAGES_PER_READ as usize;
    assert!(before <= 3 * of_a_turn, "{before} before hers, {of_a_turn} in a turn");
}

/// The answers follow later, and the queue remains short until then.
#[test]
fn who_reads_no_answers_is_not_read() {
    let world = World::new();
    let mut alice = StreamUser::connect(world.server);
    alice.socket.set_nonblocking(true).unwrap();
    let mut written = 0;
    let requests: Vec<u8> = (0..=255).flat_map(binding).collect();
    // Fills the kernel's buffers on both sides, also with answers.
    let mut are_full = || {
        let from = written % requests.len();
        let wrote = (&alice.socket).write(&requests[from..]).unwrap_or(0);
        written += wrote;
        wrote == 0
    };
    let mut quiet = 0;
    while quiet < 50 {
        if are_full() {
            quiet += 1;
            std::thread::sleep(Duration::from_millis(4));
        } else {
            quiet = 0;
        }
    }
    alice.socket.set_nonblocking(false).unwrap();
    assert_eq!(world.count(Series::StreamsEnded(StreamEnd::Stuck)), 0);
    for number in 0..written / 20 {
        let answer = alice.read().unwrap();
        assert_eq!((&answer[..2], answer[8]), (&[1, 1][..], number as u8), "{number}");
    }
    // Completes the last request.
    alice.write(&binding((written / 20) as u8)[written % 20..]);
    assert_eq!(alice.read().unwrap()[..2], [1, 1]);
    world.assert_adds_up();
}

#[test]
fn who_has_ended_has_the_answers_to_what_was_asked() {
    // 8489-6.2.2-04: this one waits for the user.
    let world = World::new();
    let mut alice = StreamUser::connect(world.server);
    alice.client.allocate(support::user::now(), AllocateOptions::default()).unwrap();
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.write(&request);
    let challenge = alice.read().unwrap();
    let _ = alice.client.handle_datagram(support::user::now(), &challenge);
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.write(&[&binding(1)[..], &request].concat());
    alice.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let kinds: Vec<_> = std::iter::from_fn(|| alice.read()).map(|answer| answer[1]).collect();
    assert_eq!(kinds, [1, 3], "Binding, then Allocate");
    eventually("it ends", || world.count(Series::StreamsLive) == 0);
    eventually("and what it had", || world.all_sessions().is_empty());
    world.assert_adds_up();
}

#[test]
fn nobody_is_called_back() {
    // 8489-6.2.2-05
    let world = World::new();
    // Connections of other programs may take a free port of 127.0.0.1.
    let mut alice = StreamUser::connect_from([127, 78, 1, 1], world.server);
    let at = alice.addr();
    alice.write(&binding(1));
    assert_eq!(alice.socket.peek(&mut [0]).unwrap(), 1, "an answer");
    // The client sends another request and disconnects before the response. Another program then
    // listens at the client's address and port.
    let hold = world.hold();
    alice.write(&binding(2));
    // Closing with an unread answer resets the connection, so the address becomes free.
    drop(alice);
    let mut bound = None;
    eventually("the address is free", || {
        bound = std::net::TcpListener::bind(at).ok();
        bound.is_some()
    });
    let there = bound.unwrap();
    there.set_nonblocking(true).unwrap();
    drop(hold);
    eventually("it ends", || world.count(Series::StreamsLive) == 0);
    assert!(there.accept().is_err(), "nobody");
    world.assert_adds_up();
}

#[test]
fn data_indications_are_for_streams_too() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::allocated(world.server);
    alice.permit(PEER);
    for len in 0..=5 {
        let data = vec![7; len];
        peer.send(alice.relayed(), &data);
        assert_eq!(alice.hear(), (None, data));
    }
    world.assert_adds_up();
}

#[test]
fn the_end_of_the_connection_ends_the_allocation() {
    // 8656-policy-02
    let world = World::new();
    let alice = StreamUser::allocated(world.server);
    let relayed = alice.relayed();
    assert_eq!(world.all_sessions().len(), 1);
    assert_eq!(world.all_sessions()[0].five_tuple.client.0, alice.addr());
    drop(alice);
    eventually("the allocation ends", || world.all_sessions().is_empty());
    assert_eq!(world.count(Series::AllocationsEnded(EndReason::ConnectionClosed)), 1);
    assert_eq!(world.count(Series::StreamsLive), 0);
    // Another program of this host may use the port for a short time.
    eventually("the port is free", || UdpSocket::bind(relayed).is_ok());
    world.assert_adds_up();
}

#[test]
fn who_reads_nothing_loses_the_oldest_data_and_no_answer() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = StreamUser::allocated(world.server);
    alice.bind_channel(peer.addr());
    // More than the kernel's buffers at both ends and the server's queue hold together.
    let dropped = Series::Drop(DropReason::StreamBacklog);
    let mut sent: u32 = 0;
    while world.count(dropped) < 100 {
        for _ in 0..50 {
            peer.send(alice.relayed(), &[&sent.to_be_bytes()[..], &[0; 1196]].concat());
            sent += 1;
        }
        assert!(sent < 1_000_000, "nothing was dropped");
    }
    // Requested while the client reads nothing, and answered after all retained data.
    alice.client.permit(support::user::now(), "192.0.2.1".parse().unwrap()).unwrap();
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.write(&request);
    let mut numbers = Vec::new();
    let answer = loop {
        let message = alice.read().unwrap();
        if message[0] < 0x40 {
            break message;
        }
        numbers.push(u32::from_be_bytes(message[4..8].try_into().unwrap()));
    };
    assert_eq!(answer[..2], [0x01, 0x08], "CreatePermission, success");
    assert!(numbers.is_sorted() && *numbers.last().unwrap() == sent - 1, "the latest is kept");
    let lost = u64::from(sent) - numbers.len() as u64;
    assert_eq!(world.count(dropped) + world.count(Series::KernelDrops), lost);
    assert!(numbers.len() * 1200 > STREAM_BACKLOG_BYTES / 2);
    world.assert_adds_up();
}

/// Returns the bytes that a server sends before closing the connection.
fn last_words(world: &World, said: &[u8]) -> Vec<u8> {
    let mut alice = StreamUser::connect(world.server);
    alice.write(said);
    let mut heard = Vec::new();
    // Closing a connection with unread bytes sends a reset.
    let _ = alice.socket.read_to_end(&mut heard);
    heard
}

#[test]
fn a_browser_is_told_and_what_else_is_no_stun_is_closed() {
    let world = World::new();
    let heard = last_words(&world, b"GET / HTTP/1.1\r\nHost: turn.example.org\r\n\r\n");
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 400 ") && heard.contains("STUN and TURN"), "{heard}");
    let body = heard.split_once("\r\n\r\n").unwrap().1;
    assert!(heard.contains(&format!("Content-Length: {}\r\n", body.len())), "{heard}");
    let long = [&[0, 1, 0xFF, 0xFC, 0x21, 0x12, 0xA4, 0x42][..], &[0; 5000]].concat();
    for (said, end) in [
        (&b"\x16\x03\x01\x00\x05hello"[..], StreamEnd::TlsNotServed),
        (b"SSH-2.0-OpenSSH_9.2\r\n\xFF", StreamEnd::ByUs),
        (b"\xFF\xFF\xFF\xFF", StreamEnd::NotStun),
        (b"\0\x01\0\0\x21\x12\xA4\x43", StreamEnd::NotStun),
        (&long, StreamEnd::TooLong),
    ] {
        last_words(&world, said);
        if end != StreamEnd::ByUs {
            eventually("it is counted", || world.count(Series::StreamsEnded(end)) > 0);
        }
    }
    world.assert_adds_up();
}

#[test]
fn a_certificate_authority_is_sent_to_who_has_its_token() {
    let acme_redirect = Some("http://acme.example.org/c/".to_owned());
    let world = World::start(Start { acme_redirect, ..Start::default() });
    let mut authority = StreamUser::connect(world.server);
    for piece in [&b"GET /.well-known/acme-chal"[..], b"lenge/a_Token-1", b" HTTP/1.1\r\n\r\n"] {
        authority.write(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut heard = String::new();
    authority.socket.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 301 "), "{heard}");
    assert!(heard.contains("\r\nLocation: http://acme.example.org/c/a_Token-1\r\n"), "{heard}");
    let heard = last_words(&world, b"GET /.well-known/acme-challenge/../x HTTP/1.1\r\n\r\n");
    assert!(heard.starts_with(b"HTTP/1.1 400 "));
    world.assert_adds_up();
}

#[test]
fn one_address_has_so_many_connections_and_gets_others_when_they_end() {
    // 8489-6.2.2-06
    let limits = ConnectionLimits { total: 0, per_address: 2 };
    let world = World::start(Start { limits, ..Start::default() });
    let first = StreamUser::allocated(world.server);
    let _second = StreamUser::allocated(world.server);
    let mut third = TcpStream::connect(world.server).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap_or(0), 0, "closed");
    assert_eq!(world.count(Series::StreamsRefused(StreamRefusal::Address)), 1);
    drop(first);
    eventually("its place is free", || world.count(Series::StreamsLive) == 1);
    StreamUser::allocated(world.server);
}

/// The server's health check succeeds while clients hold all connections.
#[test]
fn a_full_table_has_slots_for_a_few_connections_of_this_host() {
    let limits = ConnectionLimits { total: 2, per_address: 1000 };
    let world = World::start(Start { limits, ..Start::default() });
    let stranger = |last| {
        let local = Some(SocketAddr::from(([127, 0, last, 1], 0)));
        let options = linux_net::ConnectOptions { local, ..Default::default() };
        linux_net::TcpStream::connect_to(world.server, &options).unwrap()
    };
    let strangers = [2, 3].map(stranger);
    eventually("they have all", || world.count(Series::StreamsLive) == 2);
    let refused = stranger(4);
    eventually("refused", || world.count(Series::StreamsRefused(StreamRefusal::Total)) == 1);

    let mut own: Vec<_> = (0..OWN_CONNECTIONS_BEYOND_LIMITS)
        .map(|number| {
            let mut own = StreamUser::connect(world.server);
            own.write(&binding(number as u8));
            own.socket.read_exact(&mut [0; 32]).unwrap();
            own
        })
        .collect();
    let mut another = StreamUser::connect(world.server);
    assert_eq!(another.socket.read(&mut [0]).unwrap_or(0), 0, "closed");
    // These clients' network has the most connections, and the newcomers evict none.
    let newcomers: Vec<_> = (10..20).map(stranger).collect();
    eventually("refused", || world.count(Series::StreamsRefused(StreamRefusal::Total)) == 12);
    for (own, number) in own.iter_mut().zip(50..) {
        own.write(&binding(number));
        own.socket.read_exact(&mut [0; 32]).unwrap();
    }
    drop((strangers, refused, own, newcomers));
    eventually("all slots are free", || world.count(Series::StreamsLive) == 0);
    StreamUser::allocated(world.server);
}

/// Connections without an allocation are evicted for connections of networks with fewer
/// connections.
#[test]
fn in_a_full_table_silent_connections_make_room_for_other_networks() {
    let limits = ConnectionLimits { total: 40, per_address: 1000 };
    let world = World::start(Start { limits, ..Start::default() });
    let from = |address| StreamUser::connect_from(address, world.server);
    let live = || world.count(Series::StreamsLive);
    let mut flood: Vec<_> = (0..40).map(|_| from([127, 1, 1, 1])).collect();
    for network in 2..8 {
        flood.extend((1..10).map(|number| from([127, network, number, 1])));
    }
    eventually("they have all", || live() == 40);
    let mut honest: Vec<_> = (30..50)
        .map(|network| {
            let mut honest = from([127, network, 0, 1]);
            honest.allocate();
            flood.push(from([127, 2, network, 1]));
            honest
        })
        .collect();
    eventually("the table is no larger", || live() <= 40);
    assert_eq!(world.all_sessions().len(), honest.len(), "none of them made room");
    honest.clear();
    world.assert_adds_up();
}

#[test]
fn plain_clients_are_refused_where_only_tls_is_served() {
    let world = World::start(Start { only_secure: true, ..Start::default() });
    let mut alice = StreamUser::connect(world.server);
    alice.write(&binding(1));
    assert_eq!(alice.socket.read(&mut [0; 64]).unwrap_or(0), 0, "closed without an answer");
    eventually("counted", || world.count(Series::StreamsEnded(StreamEnd::TcpNotServed)) == 1);
}
