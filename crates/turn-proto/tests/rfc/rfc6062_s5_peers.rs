//! RFC 6062 §§4.1, 5.3, 5.5: peers that connect, and connections that close with an allocation.

use std::net::SocketAddr;

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::tcp::{alice, connect_request, tcp_world};
use crate::support::*;

fn allocate(world: &mut World, client: &mut Client) -> SocketAddr {
    let reply = client.ask(world, Method::ALLOCATE, |builder| {
        builder.requested_transport(6);
    });
    reply.success().relayed()[0]
}

fn connect(world: &mut World, client: &mut Client, peer: &str) -> ConnectionId {
    let reply = client.ask(world, Method::CONNECT, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(peer));
    });
    let reply = reply.success();
    let id = value::connection_id(reply.first(AttributeType::CONNECTION_ID).unwrap()).unwrap();
    ConnectionId(id)
}

fn bind(world: &mut World, client: &mut Client, id: ConnectionId) -> Reply {
    client.ask(world, Method::CONNECTION_BIND, |builder| {
        builder.connection_id(id.0);
    })
}

#[test]
fn a_stranger_who_connects_is_sent_away() {
    // 6062-5.3-01
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    let refused = world.peer_connects(relayed, PEER).unwrap_err();
    assert_eq!(refused, PeerRefusal::NoPermission);
    client.permit(&mut world, &[PEER]).success();
    let refused = world.peer_connects(relayed, "192.0.2.11:5000").unwrap_err();
    assert_eq!(refused, PeerRefusal::NoPermission);
    world.advance_silently(secs(300));
    let refused = world.peer_connects(relayed, PEER).unwrap_err();
    assert_eq!(refused, PeerRefusal::NoPermission, "a permission ends");
    assert!(world.connections.is_empty());
}

#[test]
fn the_nonce_of_the_allocation_is_good_for_its_data_connections() {
    // 6062-5.4-03. pion's client takes 438 to a ConnectionBind for a final word.
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let connection = connect(&mut world, &mut client, PEER);
    let mut other = Client::at("198.51.100.9:2").over(Transport::Tcp);
    other.nonce = client.nonce.clone();
    assert_eq!(
        bind(&mut world, &mut other, connection).code(),
        Some(438),
        "from elsewhere it is not"
    );
    let mut data = alice(2);
    data.nonce = client.nonce.clone();
    // The client seals the request immediately, without a challenge.
    bind(&mut world, &mut data, connection).success();
    let mut third = alice(3);
    third.nonce = client.nonce;
    let refused = third.try_allocate(&mut world, |_| ());
    assert_eq!(refused.code(), Some(438), "for other requests it is not, either");
}

#[test]
fn the_client_is_told_of_a_permitted_peer() {
    // 6062-5.3-02, 6062-6-01
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    client.permit(&mut world, &[PEER]).success();
    // Any port of it.
    for from in [PEER, "192.0.2.10:9"] {
        let (id, answer, bytes) = world.peer_connects(relayed, from).unwrap();
        assert_eq!((answer.to, answer.error, answer.held), (client.path, false, false));
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.class(), Class::Indication);
        assert_eq!(message.method(), Method::CONNECTION_ATTEMPT);
        assert_eq!(message.method(), Method::new(12).unwrap());
        let peer = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
        assert_eq!(value::xor_address(peer, message.transaction_id()), Ok(addr(from)));
        let told = message.first(AttributeType(0x002A)).unwrap();
        assert_eq!(told, id.0.to_be_bytes());
    }
    assert_eq!(world.record().connections, 2);
}

#[test]
fn a_peers_connection_waits_thirty_seconds() {
    // 6062-5.3-02
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    client.permit(&mut world, &[PEER]).success();
    let (bound, ..) = world.peer_connects(relayed, PEER).unwrap();
    world.advance(secs(15));
    let (late, ..) = world.peer_connects(relayed, "192.0.2.10:9").unwrap();
    bind(&mut world, &mut alice(2), bound).success();
    world.advance(secs(29));
    assert!(world.connections.contains_key(&late));
    world.advance(secs(2));
    assert_eq!(world.connections.keys().collect::<Vec<_>>(), [&bound]);
    bind(&mut world, &mut alice(3), late).refused(400);
}

#[test]
fn a_client_has_as_many_connections_as_it_may() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    client.permit(&mut world, &[PEER]).success();
    for port in 1..=64 {
        world.peer_connects(relayed, &format!("192.0.2.10:{port}")).unwrap();
    }
    let refused = world.peer_connects(relayed, PEER).unwrap_err();
    assert_eq!(refused, PeerRefusal::TooMany);
}

/// A Connect has failed if the peer accepts it after the time limit. The server has closed the
/// connection, and the response to the client has no number.
#[test]
fn a_peer_that_accepts_too_late_is_not_told() {
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let (request, pending, connection) = calling(&mut world, &mut client);
    world.advance(limits::CONNECT_WITHIN + secs(1));
    assert_eq!(closed(&mut world), [connection]);
    let connected = Event::PeerConnected { pending, connection, result: Ok(()) };
    let (_, bytes) = world.handle_event(connected).unwrap();
    client.decode(&request, bytes).refused(447);
    world.carry_out();
    assert_eq!(closed(&mut world), [], "it is closed once");
    assert_eq!(world.record().connections, 0);
}

/// The server closes a connection that a peer accepts after the operator has ended the allocation.
#[test]
fn a_peer_that_accepts_what_was_ended_is_closed() {
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let (request, pending, connection) = calling(&mut world, &mut client);
    let id = world.record().id;
    assert!(world.server.end_allocation(world.now, id, EndReason::EndedByOperator));
    world.carry_out();
    closed(&mut world);
    let connected = Event::PeerConnected { pending, connection, result: Ok(()) };
    let (_, bytes) = world.handle_event(connected).unwrap();
    client.decode(&request, bytes).refused(447);
    world.carry_out();
    assert_eq!(closed(&mut world), [connection]);
}

/// Sends a Connect, and stores the commands from then on.
fn calling(world: &mut World, client: &mut Client) -> (Vec<u8>, PendingId, ConnectionId) {
    world.hold = true;
    let request = connect_request(world, client, PEER);
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let Command::Tcp(command) = world.held.remove(0) else { panic!() };
    let TcpCommand::Connect { pending, connection, .. } = command else { panic!() };
    (request, pending, connection)
}

/// Takes the connections that held commands close.
fn closed(world: &mut World) -> Vec<ConnectionId> {
    let held = std::mem::take(&mut world.held).into_iter();
    held.filter_map(|command| {
        let Command::Tcp(TcpCommand::Close { connection }) = command else { return None };
        Some(connection)
    })
    .collect()
}

#[test]
fn a_connection_can_be_bound_until_its_time_is_over() {
    // 6062-5.4-02
    let waits = limits::BIND_WITHIN;
    for (after, code) in [(waits - std::time::Duration::from_nanos(1), None), (waits, Some(400))] {
        let mut world = tcp_world();
        let mut client = alice(1);
        let relayed = allocate(&mut world, &mut client);
        client.permit(&mut world, &[PEER]).success();
        let (id, ..) = world.peer_connects(relayed, PEER).unwrap();
        world.advance_silently(after);
        assert_eq!(bind(&mut world, &mut alice(2), id).code(), code, "after {after:?}");
    }
}

/// The end of a wait closes no other connection.
#[test]
fn each_connection_has_its_own_end() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    client.permit(&mut world, &[PEER]).success();
    world.peer_connects(relayed, PEER).unwrap();
    world.advance(secs(15));
    let (late, ..) = world.peer_connects(relayed, "192.0.2.10:9").unwrap();
    world.advance(secs(16));
    assert_eq!(world.connections.keys().collect::<Vec<_>>(), [&late]);
    bind(&mut world, &mut alice(2), late).success();
}

/// The end of one of two relayed addresses closes the connections of its family, and no others.
#[test]
fn a_half_takes_its_own_connections_with_it() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let reply = client.ask(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(6).additional_address_family(2);
    });
    reply.success();
    let stays = connect(&mut world, &mut client, PEER);
    connect(&mut world, &mut client, PEER_V6);
    client.refresh_half(&mut world, 2, 0).success();
    assert_eq!(world.connections.keys().collect::<Vec<_>>(), [&stays]);
    assert_eq!(world.record().connections, 1);
    bind(&mut world, &mut alice(2), stays).success();
}

#[test]
fn one_account_leaves_connections_with_peers_to_others() {
    let mut world = tcp_world();
    let mut connections = 0;
    for number in 0..200 {
        let mut client = alice(number + 1);
        let relayed = allocate(&mut world, &mut client);
        client.permit(&mut world, &[PEER]).success();
        connections += (1..=limits::CONNECTIONS_PER_ALLOCATION_MAX)
            .filter(|port| world.peer_connects(relayed, &format!("192.0.2.10:{port}")).is_ok())
            .count();
    }
    let most = limits::CONNECTIONS_MAX as usize;
    assert!((most / 8 * 7..most).contains(&connections), "{connections}");
    let mut bob = Client::at("203.0.113.9:1").over(Transport::Tcp).as_bob();
    let relayed = allocate(&mut world, &mut bob);
    bob.permit(&mut world, &[PEER]).success();
    world.peer_connects(relayed, PEER).unwrap();
}

#[test]
fn a_peer_on_this_host_is_another_relay() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    let other = allocate(&mut world, &mut alice(2));
    client.permit(&mut world, &[&other.to_string()]).success();
    world.peer_connects(relayed, &other.to_string()).unwrap();
    let service = SocketAddr::new(other.ip(), other.port() ^ 1).to_string();
    assert_eq!(world.peer_connects(relayed, &service).unwrap_err(), PeerRefusal::OwnAddress);
}

#[test]
fn behind_nat_peers_are_told_as_clients_know_them() {
    let mut policy = Policy { tcp_relaying: true, ..behind_nat() };
    policy.relay.truncate(1);
    let mut world = World::with(policy);
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    let other = allocate(&mut world, &mut alice(2));
    assert_eq!(other.ip(), ip(RELAY_V4));
    client.permit(&mut world, &[&other.to_string()]).success();
    let local = SocketAddr::new(ip("10.0.0.5"), other.port()).to_string();
    let (_, _, bytes) = world.peer_connects(relayed, &local).unwrap();
    let message = Message::parse(&bytes).unwrap();
    let told = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
    assert_eq!(value::xor_address(told, message.transaction_id()), Ok(other));
}

type End = fn(&mut World, &mut Client);

#[test]
fn an_allocation_takes_its_connections_with_it() {
    // 6062-5.5-01, 6062-4.1-01
    let ends: [(End, EndReason); 4] = [
        (
            |world, client| {
                client.refresh(world, Some(0)).success();
            },
            EndReason::Deleted,
        ),
        (|world, _| world.advance(secs(601)), EndReason::Expired),
        (
            |world, client| {
                world.server.close(world.now, &client.path.five_tuple);
                assert!(world.carry_out().is_empty());
            },
            EndReason::ConnectionClosed,
        ),
        (
            |world, _| {
                world.server.end_all(world.now, EndReason::Shutdown);
                assert!(world.carry_out().is_empty());
            },
            EndReason::Shutdown,
        ),
    ];
    for (end, reason) in ends {
        let mut world = tcp_world();
        let mut client = alice(1);
        let relayed = allocate(&mut world, &mut client);
        let bound = connect(&mut world, &mut client, PEER);
        bind(&mut world, &mut alice(2), bound).success();
        connect(&mut world, &mut client, "192.0.2.10:1");
        world.ends();
        end(&mut world, &mut client);
        assert!(world.connections.is_empty(), "{reason:?}");
        assert!(!world.is_open(relayed));
        assert_eq!(world.ends(), [reason]);
        bind(&mut world, &mut alice(3), bound).refused(400);
    }
}

#[test]
fn who_goes_while_a_peer_is_called_is_not_waited_for() {
    // 6062-4.1-01
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    world.silent.insert(addr(PEER));
    let request = connect_request(&mut world, &mut client, PEER);
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    world.server.close(world.now, &client.path.five_tuple);
    assert!(world.carry_out().is_empty(), "nobody hears an answer");
    assert!(world.connections.is_empty());
    world.check();
}

#[test]
fn a_peer_that_answers_an_allocation_that_is_gone_is_closed() {
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    world.hold = true;
    let request = connect_request(&mut world, &mut client, PEER);
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let Command::Tcp(command) = world.held.remove(0) else { panic!() };
    let TcpCommand::Connect { pending, connection, .. } = command else { panic!() };
    world.server.end_all(world.now, EndReason::Shutdown);
    world.carry_out();
    world.held.clear();
    let connected = Event::PeerConnected { pending, connection, result: Ok(()) };
    assert_eq!(world.handle_event(connected), None);
    let close = Command::Tcp(TcpCommand::Close { connection });
    let told = world.server.poll_command();
    assert_eq!(format!("{told:?}"), format!("{:?}", Some(close)));
}

#[test]
fn a_deleted_allocation_still_answers_who_waits() {
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    world.silent.insert(addr(PEER));
    let request = connect_request(&mut world, &mut client, PEER);
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let id = world.record().id;
    assert!(world.server.end_allocation(world.now, id, EndReason::EndedByOperator));
    let mut answers = world.carry_out();
    let (to, bytes) = answers.pop().unwrap();
    assert_eq!((to, answers.len()), (client.path, 0));
    client.decode(&request, bytes).refused(447);
}

#[test]
fn datagrams_are_not_for_tcp_allocations() {
    // 6062-4.1-01
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, 0x4000, PEER).refused(403);
    assert_eq!(client.send(&mut world, PEER, b"x").dropped(), DropReason::RelaysTcp);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::RelaysTcp);
}

#[test]
fn a_reload_closes_connections_with_peers_that_are_forbidden() {
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let gone = connect(&mut world, &mut client, PEER);
    let stays = connect(&mut world, &mut client, "192.0.2.99:1");
    bind(&mut world, &mut alice(2), gone).success();
    let policy = Policy { peer_rules: rules(&["192.0.2.10/32"]), ..world.policy.clone() };
    world.apply(policy);
    assert_eq!(world.connections.keys().collect::<Vec<_>>(), [&stays]);
    assert_eq!(world.record().connections, 1);
    // Disabling relaying keeps live connections.
    world.apply(Policy { tcp_relaying: false, ..world.policy.clone() });
    assert_eq!(world.record().connections, 1);
}

#[test]
fn what_connections_carry_counts_and_is_held_to_the_rate() {
    let mut policy = Policy { tcp_relaying: true, ..policy() };
    policy.quotas.bytes_per_second = 100_000;
    let mut world = World::with(policy);
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let id = connect(&mut world, &mut client, PEER);
    let now = world.now;
    assert_eq!(world.server.carried(now, id, Direction::ToPeer, 100_000), None, "a second's worth");
    let rest = world.server.carried(now, id, Direction::ToPeer, 50_000).unwrap();
    assert_eq!(rest, now.instant + std::time::Duration::from_millis(500));
    assert_eq!(world.server.carried(now, id, Direction::ToClient, 1), None);
    world.advance(secs(2));
    assert_eq!(world.server.carried(world.now, id, Direction::ToPeer, 1), None);
    let traffic = world.record().traffic;
    assert_eq!((traffic.to_peer_bytes, traffic.to_client_bytes), (150_001, 1));
    assert_eq!(world.server.carried(now, ConnectionId(1), Direction::ToPeer, 1), None);
}
