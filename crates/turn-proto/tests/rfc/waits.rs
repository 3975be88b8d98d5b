//! Waiting requests at an export to another process.

use std::sync::Arc;

use stun_wire::{AttributeType, Class, Message, Method};
use turn_proto::{EndedWait, Refusal, WhenSilent};
use turn_types::{ClientPath, Transport};

use crate::support::tcp::{alice, connect_request, tcp_world};
use crate::support::*;

/// Result for a client.
#[derive(Debug, PartialEq)]
enum Ended {
    Unserved(ClientPath, Vec<u8>),
    Refused(ClientPath, u16),
    Dropped,
}

/// Removes all waiting requests, and returns the results.
fn end_waits(world: &mut World) -> Vec<Ended> {
    let mut all = Vec::new();
    world.notices.clear();
    while let Some(ended) = world.server.end_wait(&mut world.reply) {
        all.push(match ended {
            EndedWait::Unserved { path, request } => Ended::Unserved(path, request.into()),
            EndedWait::Refused(answer) => {
                let reply = Message::parse(&world.reply[..answer.len.into()]).unwrap();
                assert!(answer.error && reply.class() == Class::Error);
                let code = reply.first(AttributeType::ERROR_CODE).unwrap();
                Ended::Refused(answer.to, u16::from(code[2]) * 100 + u16::from(code[3]))
            }
            EndedWait::Queued(packet) => panic!("{packet:?}: no client moves"),
            EndedWait::Dropped => Ended::Dropped,
        });
        assert!(world.carry_out().is_empty());
    }
    all
}

fn allocate_request(world: &mut World, client: &mut Client) -> Vec<u8> {
    client.sealed(world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    })
}

/// The successor handles them in order.
#[test]
fn requests_of_a_stream_that_wait_for_their_user_come_back() {
    let mut world = tcp_world();
    let (mut client, mut other) = (alice(1), alice(2));
    let first = allocate_request(&mut world, &mut client);
    let second = client.sealed(&mut world, Method::REFRESH, |_| ());
    let of_other = allocate_request(&mut world, &mut other);
    world.database_hangs = true;
    for (path, request) in [(client.path, &first), (other.path, &of_other), (client.path, &second)]
    {
        assert!(matches!(world.from_client(&path, request), Fate::Wait));
    }
    let expected = [(client.path, second), (other.path, of_other), (client.path, first)];
    let expected = expected.map(|(path, request)| Ended::Unserved(path, request));
    assert_eq!(end_waits(&mut world), expected, "the newest comes first");

    assert_eq!(end_waits(&mut world), []);
    assert!(world.advance_and_hear(secs(60)).is_empty());
    world.check();
}

/// The client retransmits.
#[test]
fn requests_over_udp_and_dtls_are_dropped() {
    for transport in [Transport::Udp, Transport::Dtls] {
        let mut world = World::new();
        let mut client = Client::new(1).over(transport);
        let request = allocate_request(&mut world, &mut client);
        world.database_hangs = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        assert_eq!(end_waits(&mut world), [Ended::Dropped]);
        // After a rollback as well.
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    }
}

/// An Allocate has passed every check, and has its slot in the quotas.
#[test]
fn an_allocate_that_waits_for_the_authorizer_is_refused() {
    for (transport, is_told) in [(Transport::Tcp, true), (Transport::Udp, false)] {
        let mut world = World::new();
        world.policy.auth.authorizer = Some(WhenSilent::Refuse);
        world.server.apply(world.now, Arc::new(world.policy.clone()));
        let mut client = Client::new(1).over(transport);
        client.log_in(&mut world);
        let request = allocate_request(&mut world, &mut client);
        world.hold = true;
        assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
        let found = world.held.remove(0);
        assert!(world.carry_out_one(found).is_none());
        world.carry_out();
        let expected = if is_told { Ended::Refused(client.path, 500) } else { Ended::Dropped };
        assert_eq!(end_waits(&mut world), [expected]);
        let refusals = if is_told { vec![Refusal::AuthorizerUnavailable] } else { Vec::new() };
        assert_eq!(world.refusals(), refusals);
        world.hold = false;
        let late = world.held.remove(0);
        assert!(world.carry_out_one(late).is_none(), "the answer comes late");
        world.check();
    }
}

/// RFC 6062 §5.2: the peer has not answered yet.
#[test]
fn a_connect_is_refused_and_its_connection_closed() {
    let mut world = tcp_world();
    let mut client = alice(1);
    client
        .ask(&mut world, Method::ALLOCATE, |b| {
            b.requested_transport(6);
        })
        .success();
    client.permit(&mut world, &["192.0.2.10:80"]).success();
    world.silent.insert(addr("192.0.2.10:80"));
    let request = connect_request(&mut world, &mut client, "192.0.2.10:80");
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    assert_eq!(world.connections.len(), 1);
    assert_eq!(end_waits(&mut world), [Ended::Refused(client.path, 447)]);
    assert!(world.connections.is_empty());
    assert_eq!(world.refusals(), [Refusal::ConnectionFailed]);
    // The same peer can be tried again.
    world.silent.clear();
    let again = connect_request(&mut world, &mut client, "192.0.2.10:80");
    client.exchange(&mut world, &again);
}
