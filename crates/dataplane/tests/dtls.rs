//! Clients over DTLS, through a worker on the real kernel (RFC 7350 §3).

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support;

use control::{AssociationEnd, AssociationRefusal, Fate, HelloAnswer, Series};
use dataplane::limits::{HALF_OPEN_MAX, HELLO_PIECES};
use dataplane::{ConnectionLimits, NetOptions};
use test_support::eventually;
use turn_proto::{DropReason, EndReason};
use turn_types::{IpFamily, IpMeta, Transport};

use crate::support::dtls::{
    DtlsUser, begin, begin_all, config, cookie, handshake_offering, hello, receive, socket,
    socket_at,
};
use crate::support::end::End;
use crate::support::stream::StreamUser;
use crate::support::user::TurnUser;
use crate::support::{BY_ADDRESS, LOCALHOST, LOCALHOST_V6, PEER, Start, World};

fn world() -> World {
    World::start(Start { dtls: Some(config()), ..Start::default() })
}

#[test]
fn data_goes_both_ways_by_channels_and_indications() {
    // 7350-3-01
    let world = world();
    let mut peer = End::at(PEER);
    let mut alice = DtlsUser::allocated(world.server);
    let channel = alice.bind_channel(peer.addr());
    for len in (0..=8).chain([1199, 1200, 9000]) {
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        alice.say(channel, &data);
        assert_eq!(peer.receive().bytes, data);
        peer.send(alice.relayed(), &data);
        assert_eq!(alice.hear(), (Some(channel), data));
    }
    let mut other = End::at(PEER);
    alice.permit(PEER);
    other.send(alice.relayed(), b"no channel is mine");
    // The permission covers the address. The channel is bound to another port of the address.
    assert_eq!(alice.hear(), (None, b"no channel is mine".to_vec()));
    let sessions = world.all_sessions();
    assert_eq!(sessions[0].five_tuple.transport, Transport::Dtls);
    world.assert_adds_up();
    // A message that is too long for a record is dropped, without other effects.
    other.send(alice.relayed(), &vec![1; 20_000]);
    other.send(alice.relayed(), b"small");
    assert_eq!(alice.hear().1, b"small");
    assert_eq!(world.count(Series::Drop(DropReason::TooLong)), 1);
    world.assert_adds_up();
}

#[test]
fn one_port_is_for_stun_and_for_dtls_of_either_family() {
    // 7350-3-02
    for listen in [LOCALHOST, LOCALHOST_V6] {
        let world = World::start(Start { listen, dtls: Some(config()), ..Start::default() });
        let mut peer = End::at(PEER);
        let mut plain = TurnUser::allocated(listen, world.server);
        let mut secured = DtlsUser::allocated(world.server);
        let (one, two) = (plain.bind_channel(peer.addr()), secured.bind_channel(peer.addr()));
        plain.say(one, &[b"plain"], IpMeta::DEFAULT);
        secured.say(two, b"secured");
        let mut heard = [peer.receive().bytes, peer.receive().bytes];
        heard.sort();
        assert_eq!(heard, [&b"plain"[..], b"secured"]);
        peer.send(plain.relayed(IpFamily::V4), b"to plain");
        peer.send(secured.relayed(), b"to secured");
        assert_eq!(plain.hear().payload, b"to plain");
        assert_eq!(secured.hear().1, b"to secured");
        world.assert_adds_up();
    }
}

#[test]
fn many_clients_have_one_socket() {
    let world = world();
    let mut peer = End::at(PEER);
    let mut users: Vec<_> = (0..40).map(|_| DtlsUser::allocated(world.server)).collect();
    assert_eq!(world.count(Series::AssociationsLive), 40);
    for (number, user) in users.iter_mut().enumerate() {
        let channel = user.bind_channel(peer.addr());
        user.say(channel, &[number as u8]);
        let said = peer.receive();
        assert_eq!(said.bytes, [number as u8]);
        peer.send(said.from, &[number as u8 + 100]);
    }
    for (number, user) in users.iter_mut().enumerate() {
        assert_eq!(user.hear().1, [number as u8 + 100]);
    }
    world.assert_adds_up();
    assert_eq!(world.count(Series::AssociationsHalfOpen), 0);
}

#[test]
fn a_client_that_goes_takes_its_allocation_along() {
    let world = world();
    let mut alice = DtlsUser::allocated(world.server);
    alice.stream.shutdown().unwrap();
    eventually("it is gone", || world.all_sessions().is_empty());
    assert_eq!(world.count(Series::AssociationsEnded(AssociationEnd::ByClient)), 1);
    assert_eq!(world.count(Series::AllocationsEnded(EndReason::ConnectionClosed)), 1);
    assert_eq!(world.count(Series::AssociationsLive), 0);
    world.assert_adds_up();
}

#[test]
fn a_handshake_without_a_common_suite_ends_its_association() {
    let world = world();
    let mut handshake = handshake_offering(socket(world.server), "AES128-GCM-SHA256");
    let failed = Series::AssociationsEnded(AssociationEnd::Failed);
    eventually("it is refused", || {
        let refused = handshake.connect().is_err_and(|error| error.ssl_error().is_some());
        refused || world.count(failed) > 0
    });
    eventually("it is counted", || world.count(failed) == 1);
    assert_eq!(world.count(Series::AssociationsLive), 0);
    world.assert_adds_up();
}

#[test]
fn a_client_that_begins_anew_from_the_same_port_is_served_anew() {
    // RFC 6347 §4.2.8
    let world = world();
    let alice = DtlsUser::allocated(world.server);
    let again = alice.stream.get_ref().0.try_clone().unwrap();
    // The client has crashed and sends nothing more: OpenSSL sends no close_notify for a dropped
    // session.
    drop(alice);
    let mut again = DtlsUser::connect_by(again, world.server);
    assert_eq!(world.count(Series::AssociationsEnded(AssociationEnd::Replaced)), 1);
    assert!(world.all_sessions().is_empty(), "it was the old association's");
    again.allocate();
    assert_eq!(world.count(Series::AssociationsLive), 1);
    world.assert_adds_up();
}

/// A sender with a forged address never receives a cookie for the address.
#[test]
fn a_hello_without_a_cookie_does_not_touch_an_association() {
    let world = world();
    let mut alice = DtlsUser::allocated(world.server);
    let wire = alice.stream.get_ref().0.try_clone().unwrap();
    wire.send(&hello([1; 32], &[])).unwrap();
    wire.send(&hello([1; 32], &[5; 32])).unwrap();
    assert_eq!(cookie(&receive(&wire)).len(), 32);
    assert_eq!(cookie(&receive(&wire)).len(), 32);
    let mut peer = End::at(PEER);
    let channel = alice.bind_channel(peer.addr());
    alice.say(channel, b"still here");
    assert_eq!(peer.receive().bytes, b"still here");
    world.assert_adds_up();
}

#[test]
fn a_hundred_thousand_first_hellos_leave_nothing() {
    let world = world();
    let flood = socket(world.server);
    flood.set_nonblocking(true).unwrap();
    let mut room = [0; 256];
    let (mut answered, mut given_up) = (0_u64, 0);
    for number in 0..100_000_u32 {
        let mut random = [0; 32];
        random[..4].copy_from_slice(&number.to_be_bytes());
        let question = hello(random, &[]);
        let _ = flood.send(&question);
        // Neither the receive buffer nor the speed of the machine is under test.
        let sent = u64::from(number) + 1;
        if !sent.is_multiple_of(64) {
            continue;
        }
        let until = Instant::now() + Duration::from_millis(50);
        while answered + given_up < sent && Instant::now() < until {
            match flood.recv(&mut room) {
                Ok(len) => {
                    assert!(len <= question.len(), "amplified");
                    answered += 1;
                }
                Err(_) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        given_up = sent.saturating_sub(answered);
    }
    let totals = world.totals();
    let asked = totals.value(Series::HellosAnswered(HelloAnswer::Cookie));
    assert!(asked > 50_000 && answered > 0, "{asked} asked, {answered} answers");
    assert_eq!(totals.value(Series::AssociationsBegun), 0);
    assert_eq!(totals.value(Series::AssociationsLive), 0);
    world.assert_adds_up();
    DtlsUser::allocated(world.server);
}

/// Starts a handshake with a valid cookie, and does not continue the handshake.
fn half_open(world: &World) -> UdpSocket {
    let socket = socket(world.server);
    begin(&socket, [9; 32]);
    assert_eq!(receive(&socket)[13], 2, "a ServerHello");
    socket
}

#[test]
fn a_client_with_many_handshakes_that_go_no_further_crowds_out_its_own_alone() {
    let world =
        World::start(Start { dtls: Some(config()), limits: BY_ADDRESS, ..Start::default() });
    let other = socket_at([127, 0, 0, 9], world.server);
    begin(&other, [9; 32]);
    assert_eq!(receive(&other)[13], 2, "a ServerHello");
    let more = 10;
    let sockets: Vec<_> = (1..HALF_OPEN_MAX + more).map(|_| half_open(&world)).collect();
    let totals = world.totals();
    assert_eq!(totals.value(Series::AssociationsHalfOpen), HALF_OPEN_MAX.into());
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::CrowdedOut)), more.into());
    // An honest client is served nevertheless.
    DtlsUser::allocated(world.server);
    drop(sockets);
    world.assert_adds_up();
}

/// The table is smaller than the limit of unfinished handshakes.
#[test]
fn in_a_small_table_unfinished_handshakes_make_room_for_other_networks() {
    let limits = ConnectionLimits { total: 40, per_address: 1000 };
    let world = World::start(Start { dtls: Some(config()), limits, ..Start::default() });
    let hello = |from, number: u8| {
        let socket = socket_at(from, world.server);
        begin(&socket, [number; 32]);
        socket
    };
    let live = || world.count(Series::AssociationsLive);
    let mut flood: Vec<_> = (0..60).map(|number| hello([127, 1, 1, 1], number)).collect();
    flood.extend((0..60).map(|number| hello([127, 2, 2, number], number)));
    flood.extend((0..60).map(|number| hello([127, 3, number, 1], number)));
    flood.extend((0..60).map(|number| hello([127, 4, number, 1], number)));
    let mut honest = Vec::new();
    for number in 10..30 {
        let socket = socket_at([127, number, 0, 1], world.server);
        honest.push(DtlsUser::connect_by(socket, world.server));
        honest.last_mut().unwrap().allocate();
        flood.push(hello([127, 2, 2, number], number));
    }
    eventually("the table is no larger", || live() <= 40);
    assert_eq!(world.all_sessions().len(), honest.len());
    // Sessions with an allocation are not evicted.
    flood.extend((60..160).map(|number| hello([127, 1, 1, 1], number)));
    assert_eq!(world.all_sessions().len(), honest.len());
    drop(flood);
    world.assert_adds_up();
}

#[test]
fn behind_an_address_of_many_customers_all_half_open_ones_are_bounded_together() {
    let world = world();
    let more = 3;
    let sockets: Vec<_> = (0..HALF_OPEN_MAX + more).map(|_| half_open(&world)).collect();
    let totals = world.totals();
    assert_eq!(totals.value(Series::AssociationsHalfOpen), HALF_OPEN_MAX.into());
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::CrowdedOut)), more.into());
    drop(sockets);
    world.assert_adds_up();
}

#[test]
fn a_cookie_begins_one_association() {
    let world = world();
    let client = socket(world.server);
    let first = begin(&client, [1; 32]);
    begin(&client, [2; 32]);
    eventually("it has begun anew", || world.count(Series::AssociationsBegun) == 2);
    for _ in 0..10 {
        client.send(&first).unwrap();
    }
    let repeated = Series::Drop(DropReason::DtlsCookieUsed);
    eventually("each is dropped", || world.count(repeated) == 10);
    let totals = world.totals();
    assert_eq!(totals.value(Series::AssociationsBegun), 2);
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::Replaced)), 1);
    world.assert_adds_up();
}

/// Sends hellos with cookies until the share of the address is exhausted.
fn use_up_share(world: &World) {
    let flood = socket(world.server);
    let used_up = Series::AssociationsRefused(AssociationRefusal::Share);
    let random = |number: u64| {
        let mut random = [0; 32];
        random[..8].copy_from_slice(&number.to_be_bytes());
        random
    };
    let mut numbers = 0_u64..;
    loop {
        let randoms: Vec<_> = numbers.by_ref().take(32).map(random).collect();
        begin_all(&flood, &randoms);
        if world.count(used_up) > 0 {
            return;
        }
    }
}

#[test]
fn an_address_has_a_share_of_the_time_and_others_are_served_at_once() {
    let world =
        World::start(Start { dtls: Some(config()), limits: BY_ADDRESS, ..Start::default() });
    use_up_share(&world);
    assert!(world.count(Series::Drop(DropReason::DtlsBusy)) > 0);
    let before = world.count(Series::AssociationsEstablished);
    DtlsUser::connect_by(socket_at([127, 0, 0, 9], world.server), world.server).allocate();
    assert_eq!(world.count(Series::AssociationsEstablished), before + 1);
    world.assert_adds_up();
}

/// TLS uses the same share, and waits until some of the share is available again.
#[test]
fn a_tls_handshake_waits_for_the_share_of_its_address() {
    let tls = Some(support::tls::config());
    let world =
        World::start(Start { dtls: Some(config()), tls, limits: BY_ADDRESS, ..Start::default() });
    let paused = || world.count(Series::StreamsPaused) > 0;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = || {
            while !is_over.load(Ordering::Relaxed) {
                use_up_share(&world);
            }
        };
        scope.spawn(flood);
        while !paused() {
            let client = scope.spawn(|| StreamUser::allocated(support::tls::tunnel(world.server)));
            eventually("it is served or waits", || client.is_finished() || paused());
            is_over.store(paused(), Ordering::Relaxed);
            client.join().unwrap();
        }
    });
    world.assert_adds_up();
}

#[test]
fn the_answer_to_a_hello_is_sent_again_until_it_is_heard() {
    let world = world();
    let waiting = half_open(&world);
    let first = Instant::now();
    // The server repeats the answer by a timer, without a repeated hello.
    let mut again = receive(&waiting);
    while again[13] != 2 {
        again = receive(&waiting);
    }
    assert!(first.elapsed() > Duration::from_millis(500));
    assert_eq!(world.count(Series::AssociationsBegun), 1);
    world.assert_adds_up();
}

#[test]
fn places_are_bounded_by_address() {
    let limits = ConnectionLimits { total: 0, per_address: 2 };
    let world = World::start(Start { dtls: Some(config()), limits, ..Start::default() });
    let _one = half_open(&world);
    let mut two = DtlsUser::connect(world.server);
    let third = socket(world.server);
    third.send(&hello([9; 32], &[])).unwrap();
    let answer = receive(&third);
    third.send(&hello([9; 32], cookie(&answer))).unwrap();
    let refused = Series::AssociationsRefused(AssociationRefusal::Address);
    eventually("it is refused", || world.count(refused) == 1);
    assert_eq!(world.count(Series::Drop(DropReason::DtlsNoPlace)), 1);
    two.stream.shutdown().unwrap();
    eventually("there is a place", || world.count(Series::AssociationsLive) == 1);
    third.send(&hello([9; 32], cookie(&answer))).unwrap();
    assert_eq!(receive(&third)[13], 2);
    world.assert_adds_up();
}

#[test]
fn what_belongs_to_no_association_is_dropped_by_reason() {
    let world = world();
    let stranger = socket(world.server);
    let record = [23, 0xFE, 0xFD, 0, 1, 0, 0, 0, 0, 0, 1, 0, 4, 1, 2, 3, 4];
    stranger.send(&record).unwrap();
    // A hello that claims a length of 600 000 bytes, and contains 35.
    let mut giant = vec![22, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22];
    giant.extend([1, 9, 0x27, 0xC0, 0, 0, 0, 0, 0, 0, 0, 10]);
    giant.extend([0; 10]);
    stranger.send(&giant).unwrap();
    let mut cut = hello([1; 32], &[]);
    cut[59] = 40;
    stranger.send(&cut).unwrap();
    eventually("all were looked at", || world.count(Series::Drop(DropReason::DtlsMalformed)) == 1);
    assert_eq!(world.count(Series::Drop(DropReason::DtlsStray)), 1);
    assert_eq!(world.count(Series::Drop(DropReason::DtlsHelloInPieces)), 1);
    assert_eq!(world.count(Series::Fate(Fate::Dtls)), 0);
    world.assert_adds_up();
}

#[test]
fn without_dtls_it_is_neither_stun_nor_channel_data() {
    let world = World::new();
    socket(world.server).send(&hello([1; 32], &[])).unwrap();
    eventually("it is dropped", || world.count(Series::Drop(DropReason::NotStun)) == 1);
    world.assert_adds_up();
}

#[test]
fn a_worker_that_stops_says_so() {
    let world = world();
    let mut alice = DtlsUser::allocated(world.server);
    let totals = world.stop();
    assert_eq!(alice.read(), None);
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::Shutdown)), 1);
}

/// The successor continues sessions, not handshakes.
#[test]
fn a_client_within_its_handshake_is_told_that_it_does_not_go_on() {
    let world = world();
    let socket = socket(world.server);
    begin(&socket, [9; 32]);
    eventually("it has begun", || world.count(Series::AssociationsHalfOpen) == 1);
    world.channels.export().unwrap();
    world.channels.commit();
    let alert = std::iter::repeat_with(|| receive(&socket)).find(|said| said[0] == 21).unwrap();
    assert_eq!(alert[11..], [0, 2, 2, 80], "fatal, internal error");
    eventually("nothing of it is left", || world.count(Series::AssociationsLive) == 0);
}

#[test]
fn plain_clients_are_dropped_where_only_dtls_is_served() {
    let world = World::start(Start { dtls: Some(config()), only_secure: true, ..Start::default() });
    let plain = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42][..], &[7; 12]].concat();
    plain.send_to(&binding, world.server).unwrap();
    eventually("counted", || world.count(Series::Drop(DropReason::UdpNotServed)) == 1);
    DtlsUser::allocated(world.server);
    world.assert_adds_up();
}

/// Splits a hello into two fragments.
fn in_two(whole: &[u8], first: usize) -> [Vec<u8>; 2] {
    let (headers, body) = whole.split_at(25);
    let (one, two) = body.split_at(first);
    [(0, one), (first, two)].map(|(at, part)| {
        let mut piece = [headers, part].concat();
        piece[11..13].copy_from_slice(&((12 + part.len()) as u16).to_be_bytes());
        piece[19..22].copy_from_slice(&(at as u32).to_be_bytes()[1..]);
        piece[22..25].copy_from_slice(&(part.len() as u32).to_be_bytes()[1..]);
        piece
    })
}

/// RFC 6347 §4.2.3. The first fragment contains the cookie.
#[test]
fn a_hello_in_pieces_is_served_behind_its_cookie() {
    let world = world();
    let client = socket(world.server);
    let random = [9; 32];
    let [first, second] = in_two(&hello(random, &[]), 36);
    client.send(&second).unwrap();
    client.send(&first).unwrap();
    let answer = receive(&client);
    assert_eq!((answer[13], world.count(Series::AssociationsBegun)), (3, 0));
    let in_pieces = Series::Drop(DropReason::DtlsHelloInPieces);
    assert_eq!(world.count(in_pieces), 1, "before any cookie");
    let [first, second] = in_two(&hello(random, cookie(&answer)), 70);
    // In the wrong order, then in the right order, and the last fragment again.
    for piece in [&second, &first, &second, &second] {
        client.send(piece).unwrap();
    }
    assert_eq!(receive(&client)[13], 2, "a ServerHello");
    eventually("the rest is dropped", || world.count(in_pieces) == 3);
    assert_eq!(world.count(Series::AssociationsBegun), 1);
    world.assert_adds_up();
}

#[test]
fn a_flood_of_hellos_in_pieces_leaves_space_to_others() {
    // The receive buffer is not under test.
    let net = NetOptions { recv_buffer: 2 << 20, ..NetOptions::default() };
    let world = World::start(Start { dtls: Some(config()), net, ..Start::default() });
    let clients: Vec<_> = (0..HELLO_PIECES + 50)
        .map(|_| {
            let client = socket(world.server);
            client.send(&hello([7; 32], &[])).unwrap();
            let answer = receive(&client);
            let [first, _] = in_two(&hello([7; 32], cookie(&answer)), 70);
            (client, first)
        })
        .collect();
    for (client, first) in &clients {
        client.send(first).unwrap();
    }
    let client = socket_at([127, 0, 0, 9], world.server);
    client.send(&hello([7; 32], &[])).unwrap();
    let answer = receive(&client);
    for piece in in_two(&hello([7; 32], cookie(&answer)), 70) {
        client.send(&piece).unwrap();
    }
    assert_eq!(receive(&client)[13], 2, "a ServerHello");
    world.assert_adds_up();
}
