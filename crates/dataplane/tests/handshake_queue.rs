//! DTLS handshakes without processor time in an iteration of a worker's loop.

use std::net::UdpSocket;

use control::{AssociationEnd, AssociationRefusal, CounterTotals, HelloAnswer, Request, Series};
use dataplane::limits::{
    HALF_OPEN_MAX, HANDSHAKE_STEP_MIN, HANDSHAKE_TIME_PER_TURN, REQUESTS_PER_TURN,
};
use dataplane::{ConnectionLimits, NetOptions};
use openssl::ssl::SslStream;
use test_support::eventually;
use turn_proto::DropReason;

use crate::support::dtls::{
    Wire, begin, config, go_on, handshake, receive, socket, socket_at, verified,
};
use crate::support::{BY_ADDRESS, NOBODY, Start, World};

const BUSY: Series = Series::AssociationsRefused(AssociationRefusal::Busy);
const DROPPED: Series = Series::Drop(DropReason::DtlsBusy);

/// Maximum number of handshakes that start in one iteration.
const PER_TURN: usize =
    (HANDSHAKE_TIME_PER_TURN.as_micros() / HANDSHAKE_STEP_MIN.as_micros()) as usize;

fn world(limits: ConnectionLimits) -> World {
    // The receive buffer is not under test.
    let net = NetOptions { recv_buffer: 2 << 20, ..NetOptions::default() };
    World::start(Start { dtls: Some(config()), limits, net, ..Start::default() })
}

/// Starts a world in which many customers share each address.
fn unshared() -> World {
    world(ConnectionLimits { total: 0, per_address: 0 })
}

/// Returns clients of one address, and the clients' hellos with cookies.
fn clients(world: &World, address: [u8; 4], count: usize) -> Vec<(UdpSocket, Vec<u8>)> {
    let client = |number: usize| {
        let socket = socket_at(address, world.server);
        let hello = verified(&socket, [number as u8; 32]);
        (socket, hello)
    };
    (0..count).map(client).collect()
}

fn send_all(clients: &[(UdpSocket, Vec<u8>)]) {
    for (socket, hello) in clients {
        socket.send(hello).unwrap();
    }
}

/// Waits until `hellos` hellos were processed, with any result.
fn totals_when_taken(world: &World, hellos: usize) -> CounterTotals {
    eventually("all are taken", || {
        world.count(Series::AssociationsBegun) + world.count(BUSY) == hellos as u64
    });
    world.totals()
}

/// Starts handshakes of clients with cookies. All hellos with cookies are sent while the worker is
/// held.
fn begun_all_at_once(world: &World, clients: u64) -> Vec<SslStream<Wire>> {
    let mut handshakes: Vec<_> = (0..clients)
        .map(|_| {
            let socket = socket(world.server);
            socket.set_nonblocking(true).unwrap();
            handshake(socket)
        })
        .collect();
    let mut send_hellos = || {
        let _held = world.hold();
        for handshake in &mut handshakes {
            assert!(!go_on(handshake));
        }
    };
    send_hellos();
    let cookies = Series::HellosAnswered(HelloAnswer::Cookie);
    eventually("all have a cookie", || world.count(cookies) == clients);
    send_hellos();
    handshakes
}

/// Other clients' packets do not wait for all handshakes, and no handshake must be repeated.
#[test]
fn handshakes_that_come_all_at_once_are_begun_a_few_at_a_time_and_none_is_dropped() {
    let world = unshared();
    let clients = 200;
    let mut handshakes = begun_all_at_once(&world, clients);
    let before = world.turns();
    eventually("all are done", || {
        handshakes.retain_mut(|handshake| !go_on(handshake));
        handshakes.is_empty()
    });
    // Each handshake has at least two steps. An iteration may have started before the count.
    assert!(world.turns() - before >= 2 * clients / PER_TURN as u64 - 1);
    let totals = world.totals();
    assert_eq!(totals.value(Series::AssociationsEstablished), clients);
    assert_eq!(totals.value(Series::AssociationsBegun), clients);
    assert_eq!((totals.value(BUSY), totals.value(DROPPED)), (0, 0));
    world.assert_adds_up();
}

/// The queue is sorted by the clients' shares.
#[test]
fn clients_of_other_networks_are_begun_before_a_flood() {
    let world = world(BY_ADDRESS);
    // At most the number that one iteration receives.
    let many = 200;
    let flood = clients(&world, [127, 0, 0, 1], many);
    let others = clients(&world, [127, 9, 0, 9], 5);
    let held = world.hold();
    send_all(&flood);
    send_all(&others);
    drop(held);
    for (other, _) in &others {
        assert_eq!(receive(other)[13], 2, "a ServerHello");
    }
    let (last, _) = flood.last().unwrap();
    last.set_nonblocking(true).unwrap();
    assert!(last.recv(&mut [0; 9]).is_err(), "the last of the flood waits");
    let totals = totals_when_taken(&world, many + others.len());
    assert_eq!(totals.value(Series::AssociationsBegun), (many + others.len()) as u64);
    assert_eq!(totals.value(DROPPED), 0);
    world.assert_adds_up();
}

#[test]
fn a_hello_that_comes_again_while_it_waits_begins_one_association() {
    let world = unshared();
    let clients = clients(&world, [127, 0, 0, 1], 3 * PER_TURN);
    let held = world.hold();
    send_all(&clients);
    send_all(&clients);
    send_all(&clients);
    drop(held);
    let totals = totals_when_taken(&world, clients.len());
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::Replaced)), 0);
    assert_eq!(totals.value(DROPPED), 0);
    world.assert_adds_up();
}

#[test]
fn a_record_that_waits_for_an_association_that_ends_is_dropped() {
    let world = unshared();
    let oldest = socket(world.server);
    begin(&oldest, [1; 32]);
    let rest = clients(&world, [127, 0, 0, 1], HALF_OPEN_MAX as usize - PER_TURN - 1);
    for (socket, hello) in &rest {
        socket.send(hello).unwrap();
        assert_eq!(receive(socket)[13], 2, "a ServerHello");
    }
    let crowding = clients(&world, [127, 0, 0, 1], 1);
    let others = clients(&world, [127, 0, 0, 9], PER_TURN);
    let held = world.hold();
    // Uses up the time of the iteration in which the hello and the record are received.
    send_all(&others);
    send_all(&crowding);
    oldest.send(&[20, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 1]).unwrap();
    drop(held);
    let stray = Series::Drop(DropReason::DtlsStray);
    eventually("it is dropped", || world.count(stray) == 1);
    let totals = world.totals();
    assert_eq!(totals.value(Series::AssociationsEnded(AssociationEnd::CrowdedOut)), 1);
    assert_eq!(totals.value(DROPPED), 0);
    world.assert_adds_up();
}

#[test]
fn what_waits_when_the_worker_stops_is_counted() {
    let world = unshared();
    let clients = clients(&world, [127, 0, 0, 1], 3 * PER_TURN);
    let before = world.totals();
    let held = world.hold();
    send_all(&clients);
    // The worker stops in the iteration that receives the hellos. Together with the holding
    // request, these requests are the maximum of one iteration.
    for _ in 1..REQUESTS_PER_TURN {
        world.mailbox.post(Request::End { id: NOBODY, reply: Box::new(drop) }).unwrap();
    }
    world.mailbox.post(Request::Stop).unwrap();
    drop(held);
    let after = world.stop();
    let fates = |totals: &CounterTotals| totals.fates().map(|(_, n)| n).sum::<u64>();
    assert_eq!(fates(&after) - fates(&before), clients.len() as u64);
    assert!(after.value(BUSY) >= 2 * PER_TURN as u64);
    assert_eq!(after.value(BUSY), after.value(DROPPED));
}
