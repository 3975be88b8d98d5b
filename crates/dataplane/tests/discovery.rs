//! Answers from a different address than the request's destination (RFC 5780), through real
//! sockets.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use control::{Fate, Leg, Series};
use stun_wire::{
    AttributeType, ChangeRequest, Class, Message, MessageBuilder, Method, TransactionId, value,
};
use turn_proto::{DiscoverySockets, DropReason, Policy};

use crate::support::*;

/// Sends a Binding request from a socket.
fn ask(socket: &UdpSocket, to: SocketAddr, write: impl FnOnce(&mut MessageBuilder<'_>)) {
    let mut request = [0; 2048];
    let id = TransactionId([0xC1; 12]);
    let mut builder = MessageBuilder::new(&mut request, Class::Request, Method::BINDING, id);
    write(&mut builder);
    let len = builder.finish().unwrap();
    socket.send_to(&request[..len], to).unwrap();
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives a success response, and returns the response with its source address.
fn hear(socket: &UdpSocket) -> (SocketAddr, Vec<u8>) {
    let mut bytes = vec![0; 4096];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    bytes.truncate(len);
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.class(), Class::Success);
    (from, bytes)
}

fn changed((change_ip, change_port): (bool, bool)) -> impl FnOnce(&mut MessageBuilder<'_>) {
    move |builder| {
        builder.change_request(ChangeRequest { change_ip, change_port });
    }
}

/// Starts a worker that listens at four addresses and serves discovery there. One listener on every
/// address provides the first pair, so each datagram sent there must specify a source address.
fn discovering() -> (World, [[SocketAddr; 2]; 2]) {
    let other = IpAddr::from([127, 0, 0, 2]);
    let world = World::start(Start {
        listen: IpAddr::from([0, 0, 0, 0]),
        also: vec![LOCALHOST, other],
        ..Start::default()
    });
    let wildcard = world.server.port();
    let at = |ip| SocketAddr::new(ip, wildcard);
    let local = [[at(LOCALHOST), world.also[0]], [at(other), world.also[1]]];
    let discovery = vec![DiscoverySockets { local, public: local }];
    world.apply(Policy { discovery, ..world.policy.clone() });
    (world, local)
}

#[test]
fn an_answer_leaves_from_any_of_the_four() {
    let (world, local) = discovering();
    let socket = socket();
    let mut asked = 0;
    for (ip, port) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for change in [(false, false), (false, true), (true, false), (true, true)] {
            ask(&socket, local[ip][port], changed(change));
            asked += 1;
            let (from, answer) = hear(&socket);
            let expected = local[ip ^ usize::from(change.0)][port ^ usize::from(change.1)];
            assert_eq!(from, expected, "{} {change:?}", local[ip][port]);
            let message = Message::parse(&answer).unwrap();
            let origin = message.first(AttributeType::RESPONSE_ORIGIN).unwrap();
            assert_eq!(value::address(origin), Ok(expected), "it is the truth");
        }
    }
    world.assert_adds_up();
    assert_eq!(world.count(Series::Fate(Fate::Reply)), asked);
}

#[test]
fn an_answer_goes_to_another_port_and_is_padded() {
    let (world, local) = discovering();
    let (one, two) = (socket(), socket());
    ask(&one, local[0][0], |builder| {
        builder.response_port(two.local_addr().unwrap().port());
    });
    let (from, answer) = hear(&two);
    assert_eq!(from, local[0][0]);
    let message = Message::parse(&answer).unwrap();
    let mapped = message.first(AttributeType::MAPPED_ADDRESS).unwrap();
    assert_eq!(value::address(mapped), Ok(one.local_addr().unwrap()));
    let plain = answer.len();

    let before = world.totals().volume(Leg::ToClients).bytes;
    for _ in 0..40 {
        ask(&one, local[0][0], |builder| {
            builder
                .change_request(ChangeRequest { change_ip: true, change_port: true })
                .attribute(AttributeType::PADDING, &[1; 1500]);
        });
    }
    for _ in 0..40 {
        let (from, answer) = hear(&one);
        assert_eq!(from, local[1][1]);
        let message = Message::parse(&answer).unwrap();
        assert_eq!(message.first(AttributeType::PADDING), Some(&[0; 1500][..]));
        assert_eq!(answer.len(), plain + 4 + 1500);
    }
    world.assert_adds_up();
    let sent = world.totals().volume(Leg::ToClients).bytes - before;
    assert_eq!(sent, 40 * (plain as u64 + 1504), "padding is counted");
}

/// A policy names an address without a listener. The attempt is logged and counted, and nothing
/// else happens.
#[test]
fn an_address_that_nobody_listens_at_sends_nothing() {
    let (world, mut local) = discovering();
    local[1][1].set_port(1);
    let discovery = vec![DiscoverySockets { local, public: local }];
    world.apply(Policy { discovery, ..world.policy.clone() });
    let socket = socket();
    ask(&socket, local[0][0], changed((true, true)));
    ask(&socket, local[0][0], changed((false, false)));
    assert_eq!(hear(&socket).0, local[0][0]);
    world.assert_adds_up();
    assert_eq!(world.count(Series::Drop(DropReason::SendRefused)), 1);
}
