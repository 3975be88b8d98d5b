//! RFC 6062 §§5.1, 5.2, 5.4: Allocate, Connect and ConnectionBind.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::tcp::{alice, connect_request, tcp_world};
use crate::support::*;

const PEER_2: &str = "192.0.2.10:5001";

fn try_allocate(
    world: &mut World,
    client: &mut Client,
    write: impl FnOnce(&mut MessageBuilder<'_>),
) -> Reply {
    client.ask(world, Method::ALLOCATE, |builder| {
        builder.requested_transport(6);
        write(builder);
    })
}

fn allocate(world: &mut World, client: &mut Client) -> std::net::SocketAddr {
    try_allocate(world, client, |_| ()).success().relayed()[0]
}

fn connect(world: &mut World, client: &mut Client, peer: &str) -> Reply {
    client.ask(world, Method::CONNECT, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(peer));
    })
}

fn id_of(reply: &Reply) -> u32 {
    value::connection_id(reply.first(AttributeType::CONNECTION_ID).unwrap()).unwrap()
}

fn bind(world: &mut World, client: &mut Client, id: u32) -> Reply {
    client.ask(world, Method::CONNECTION_BIND, |builder| {
        builder.connection_id(id);
    })
}

#[test]
fn tcp_is_relayed_only_where_it_is_served() {
    // 6062-5.1-01
    let mut client = alice(1);
    let mut closed = World::new();
    try_allocate(&mut closed, &mut client, |_| ()).refused(442);
    for method in [Method::CONNECT, Method::CONNECTION_BIND] {
        let request = client.sealed(&mut closed, method, |_| ());
        let fate = closed.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "there is no such method");
    }

    // Likewise for UDP. Existing allocations continue.
    let mut world = tcp_world();
    let mut caller = Client::new(1000);
    caller.allocate(&mut world);
    let relay = world.policy.relay.clone();
    world.apply(Policy { udp_relaying: false, relay, ..world.policy.clone() });
    let refused = Client::new(1001).try_allocate(&mut world, |_| ());
    assert_eq!(refused.code(), Some(442));
    caller.refresh(&mut world, None).success();
    allocate(&mut world, &mut alice(1));

    let mut world = tcp_world();
    let mut client = alice(1);
    for protocol in [0, 1, 33, 132, 255] {
        let reply = client.ask(&mut world, Method::ALLOCATE, |builder| {
            builder.requested_transport(protocol);
        });
        reply.refused(442);
    }
    assert_eq!(world.opened, 0);
}

#[test]
fn tcp_is_relayed_for_streams_alone() {
    // 6062-5.1-02
    let mut world = tcp_world();
    for (port, transport) in [(1, Transport::Udp), (2, Transport::Dtls)] {
        let mut client = Client::new(port).over(transport);
        try_allocate(&mut world, &mut client, |_| ()).refused(400);
    }
    for (port, transport) in [(3, Transport::Tcp), (4, Transport::Tls)] {
        let mut client = Client::new(port).over(transport);
        try_allocate(&mut world, &mut client, |_| ()).success();
    }
}

#[test]
fn what_is_said_of_datagrams_is_refused_before_anything_else() {
    // 6062-5.1-03
    let mut world = tcp_world();
    let mut client = alice(1);
    let kinds = [
        (AttributeType::DONT_FRAGMENT, &[][..]),
        (AttributeType::EVEN_PORT, &[0x80]),
        (AttributeType::EVEN_PORT, &[0]),
        (AttributeType::RESERVATION_TOKEN, &[1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    for (kind, value) in kinds {
        // With IPv6 over IPv4, only DONT-FRAGMENT would be 420, and only the token 508.
        let reply = try_allocate(&mut world, &mut client, |builder| {
            builder.attribute(kind, value);
        });
        reply.refused(400);
        let reply = try_allocate(&mut world, &mut client, |builder| {
            builder.requested_address_family(2).attribute(kind, value);
        });
        reply.refused(400);
    }
    assert_eq!(world.opened, 0);
}

#[test]
fn a_relayed_address_is_listened_on_before_it_is_told() {
    // 6062-5.1-04
    let mut world = tcp_world();
    let mut client = alice(1);
    let reply = try_allocate(&mut world, &mut client, |_| ()).success();
    assert!(!reply.has(AttributeType::RESERVATION_TOKEN));
    let relayed = reply.relayed()[0];
    assert!(world.is_open(relayed));
    let record = world.record();
    assert_eq!((record.attributes.protocol, record.connections), (RelayProtocol::Tcp, 0));
    assert!(world.policy.relay[0].ports.is_listening(relayed.port()));
    assert!(!world.policy.relay[0].ports.is_open(relayed.port()), "for UDP");
    client.refresh(&mut world, Some(0)).success();
    assert!(!world.is_open(relayed) && !world.policy.relay[0].ports.is_listening(relayed.port()));
}

#[test]
fn a_port_that_is_taken_is_tried_elsewhere() {
    let mut world = tcp_world();
    world.taken_ports = (49_152..65_000).collect();
    let mut client = alice(1);
    let reply = try_allocate(&mut world, &mut client, |_| ());
    match reply.code() {
        None => assert!(reply.relayed()[0].port() >= 65_000),
        Some(code) => assert_eq!((code, world.opened), (508, 16)),
    }
    assert!(world.opened > 1);
}

#[test]
fn connect_wants_an_allocation_of_its_own_kind() {
    // 6062-5.2-01
    let mut world = tcp_world();
    let mut client = alice(1);
    connect(&mut world, &mut client, PEER).refused(437);
    client.allocate(&mut world);
    connect(&mut world, &mut client, PEER).refused(403);
    assert!(world.connections.is_empty());
}

#[test]
fn connect_wants_a_peer() {
    // 6062-5.2-02
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    client.ask(&mut world, Method::CONNECT, |_| ()).refused(400);
    let malformed = |builder: &mut MessageBuilder<'_>| {
        builder.attribute(AttributeType::XOR_PEER_ADDRESS, &[0, 1, 2]);
    };
    client.ask(&mut world, Method::CONNECT, malformed).refused(400);
    connect(&mut world, &mut client, "192.0.2.10:0").refused(400);
    connect(&mut world, &mut client, PEER_V6).refused(443);
    assert!(world.connections.is_empty());
}

#[test]
fn one_connection_with_each_peer() {
    // 6062-5.2-03
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    // In progress, pending, active.
    world.silent.insert(addr(PEER));
    let first = connect_request(&mut world, &mut client, PEER);
    assert!(matches!(world.from_client(&client.path, &first), Fate::Wait));
    let again = world.from_client(&client.path, &first);
    assert_eq!(again.dropped(), DropReason::AlreadyPending, "a retransmission");
    connect(&mut world, &mut client, PEER).refused(446);
    let id = id_of(&connect(&mut world, &mut client, PEER_2).success());
    connect(&mut world, &mut client, PEER_2).refused(446);
    bind(&mut world, &mut alice(2), id).success();
    connect(&mut world, &mut client, PEER_2).refused(446);
    // And when it has ended, another.
    world.connections.remove(&ConnectionId(id));
    world.server.connection_ended(ConnectionId(id));
    connect(&mut world, &mut client, PEER_2).success();
    assert_eq!(world.record().connections, 2);
}

#[test]
fn peers_are_judged_before_they_are_called() {
    // 6062-5.2-04
    let mut world = tcp_world();
    let mut client = alice(1);
    let relayed = allocate(&mut world, &mut client);
    let mut datagrams = Client::new(9);
    let udp = datagrams.allocate(&mut world);
    world.hold = true;
    let own_service = format!("{RELAY_V4}:{}", relayed.port() ^ 1);
    for peer in ["127.0.0.1:80", "10.0.0.1:80", "0.0.0.0:80", SERVER_V4, &own_service] {
        let refused = connect(&mut world, &mut client, peer);
        assert_eq!((peer, refused.code()), (peer, Some(403)));
    }
    connect(&mut world, &mut client, &relayed.to_string()).refused(403);
    // For TCP, another process may own a port that relays datagrams.
    connect(&mut world, &mut client, &udp.to_string()).refused(403);
    assert!(world.held.is_empty());
    world.hold = false;
    // Another allocation's is a peer.
    let other = allocate(&mut world, &mut alice(2));
    connect(&mut world, &mut client, &other.to_string()).success();
}

#[test]
fn a_datagram_is_not_for_a_port_that_relays_tcp() {
    let mut world = tcp_world();
    let listening = allocate(&mut world, &mut alice(1)).to_string();
    let mut datagrams = Client::new(2);
    datagrams.allocate(&mut world);
    datagrams.permit(&mut world, &[&listening]).success();
    let fate = datagrams.send(&mut world, &listening, b"x");
    assert_eq!(fate.dropped(), DropReason::OwnAddress);
}

#[test]
fn a_peer_that_refuses_is_447_and_may_be_tried_again() {
    // 6062-5.2-06
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    world.refusing.insert(addr(PEER));
    connect(&mut world, &mut client, PEER).refused(447);
    world.refusing.clear();
    connect(&mut world, &mut client, PEER).success();
}

#[test]
fn a_peer_that_does_not_answer_is_given_thirty_seconds() {
    // 6062-5.2-06
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    world.silent.insert(addr(PEER));
    let request = connect_request(&mut world, &mut client, PEER);
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    world.advance(std::time::Duration::from_millis(29_900));
    assert_eq!(world.connections.len(), 1);
    let mut answers = world.advance_and_hear(secs(2));
    let (to, bytes) = answers.pop().unwrap();
    assert_eq!((to, answers.len()), (client.path, 0));
    client.decode(&request, bytes).refused(447);
    assert!(world.connections.is_empty());
    assert_eq!(world.record().connections, 0);
}

/// Connects to silent peers use a share of the slots, and free slots are used again.
#[test]
fn connects_of_one_account_that_wait_leave_slots_to_others() {
    let mut world = tcp_world();
    let silent = |number: usize| format!("192.0.2.10:{}", 1000 + number);
    world.silent.extend((0..100).map(|number| addr(&silent(number))));
    let mut waiting = 0;
    for port in 1..=40 {
        let mut client = alice(port);
        allocate(&mut world, &mut client);
        for number in 0..64 {
            let request = connect_request(&mut world, &mut client, &silent(number));
            let refusal = client.refusal_unless_it_waits(&mut world, &request);
            assert!(matches!(refusal, None | Some(508)), "{refusal:?}");
            waiting += u32::from(refusal.is_none());
        }
    }
    let most = limits::PENDING_CONNECTS_MAX;
    assert!((most / 8 * 7..most).contains(&waiting), "{waiting}");
    let mut bob = Client::at("203.0.113.9:1").over(Transport::Tcp).as_bob();
    allocate(&mut world, &mut bob);
    for number in 0..4 {
        let request = connect_request(&mut world, &mut bob, &silent(number));
        assert_eq!(bob.refusal_unless_it_waits(&mut world, &request), None, "{number}");
    }
    let mut alice = alice(99);
    allocate(&mut world, &mut alice);
    let mut asks = |world: &mut World| {
        let request = connect_request(world, &mut alice, &silent(0));
        alice.refusal_unless_it_waits(world, &request)
    };
    assert_eq!(asks(&mut world), Some(508));
    for _ in 0..most / 8 {
        let (&connection, &(_, pending)) = world.connections.iter().next().unwrap();
        let pending = pending.unwrap();
        world.connections.remove(&connection);
        let failed = Event::PeerConnected { pending, connection, result: Err(ConnectError) };
        assert!(world.handle_event(failed).is_some());
    }
    assert_eq!(asks(&mut world), None);
}

#[test]
fn every_connection_has_a_number_of_its_own() {
    // 6062-5.2-07
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let mut ids = std::collections::BTreeSet::new();
    for port in 1..=64 {
        let reply = connect(&mut world, &mut client, &format!("192.0.2.10:{port}")).success();
        assert!(ids.insert(id_of(&reply)));
        assert_eq!(ConnectionId(id_of(&reply)).worker(), WorkerId(3));
    }
    let gaps = ids.iter().zip(ids.iter().skip(1)).map(|(one, next)| next - one);
    assert!(gaps.collect::<std::collections::BTreeSet<_>>().len() > 32, "they are not counted up");
    // The previous connection took the last slot.
    connect(&mut world, &mut client, PEER).refused(508);
    allocate(&mut world, &mut alice(2));
}

#[test]
fn a_connection_waits_thirty_seconds_for_the_client() {
    // 6062-5.2-09
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let id = id_of(&connect(&mut world, &mut client, PEER).success());
    world.advance(std::time::Duration::from_millis(29_900));
    assert_eq!(world.connections.len(), 1);
    // The deadline applies without the timer.
    world.advance_silently(secs(1));
    bind(&mut world, &mut alice(2), id).refused(400);
    world.advance(secs(1));
    assert!(world.connections.is_empty());

    let id = id_of(&connect(&mut world, &mut client, PEER).success());
    world.advance(secs(29));
    bind(&mut world, &mut alice(2), id).success();
    world.advance(secs(60));
    assert_eq!(world.connections.len(), 1, "as long as its two ends want");
}

#[test]
fn a_data_connection_is_a_stream() {
    // 6062-5.4-01
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let id = id_of(&connect(&mut world, &mut client, PEER).success());
    for (port, transport) in [(2, Transport::Udp), (3, Transport::Dtls)] {
        bind(&mut world, &mut Client::new(port).over(transport), id).refused(400);
    }
    bind(&mut world, &mut Client::new(4).over(Transport::Tls), id).success();
}

#[test]
fn a_number_is_good_once() {
    // 6062-5.4-02
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let id = id_of(&connect(&mut world, &mut client, PEER).success());
    let mut data = alice(2);
    data.ask(&mut world, Method::CONNECTION_BIND, |_| ()).refused(400);
    let malformed = |builder: &mut MessageBuilder<'_>| {
        builder.attribute(AttributeType::CONNECTION_ID, &[1, 2, 3]);
    };
    data.ask(&mut world, Method::CONNECTION_BIND, malformed).refused(400);
    bind(&mut world, &mut data, id ^ 1).refused(400);
    // A control connection does not become a data connection.
    bind(&mut world, &mut client, id).refused(400);
    bind(&mut world, &mut data, id).success();
    bind(&mut world, &mut alice(3), id).refused(400);
}

#[test]
fn only_the_user_of_the_allocation_has_its_connections() {
    // 6062-5.4-03
    let mut world = tcp_world();
    let mut client = alice(1);
    allocate(&mut world, &mut client);
    let id = id_of(&connect(&mut world, &mut client, PEER).success());
    let mut stranger = alice(2);
    let bare = stranger.bare(Method::CONNECTION_BIND, |builder| {
        builder.connection_id(id);
    });
    assert_eq!(stranger.exchange(&mut world, &bare).code(), Some(401));
    bind(&mut world, &mut alice(3).as_bob(), id).refused(441);
    let mut liar = alice(4);
    liar.password = "another";
    let request = liar.sealed(&mut world, Method::CONNECTION_BIND, |builder| {
        builder.connection_id(id);
    });
    let refused = world.from_client(&liar.path, &request).reply();
    assert_eq!(Reply { bytes: refused, sealed: false }.code(), Some(401));
    bind(&mut world, &mut alice(5), id).success();
}

#[test]
fn on_an_open_relay_a_number_is_good_from_home_alone() {
    // 6062-5.4-03
    let mut policy = Policy { tcp_relaying: true, ..policy() };
    policy.auth.open = true;
    let mut world = World::with(policy);
    let mut client = alice(1);
    let ask = |world: &mut World,
               client: &mut Client,
               method,
               write: &dyn Fn(&mut MessageBuilder<'_>)| {
        let request = client.bare(method, |builder| write(builder));
        client.exchange(world, &request)
    };
    ask(&mut world, &mut client, Method::ALLOCATE, &|builder| {
        builder.requested_transport(6);
    });
    let connected = ask(&mut world, &mut client, Method::CONNECT, &|builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
    });
    let id = id_of(&connected);
    let bind = |world: &mut World, mut client: Client| {
        ask(world, &mut client, Method::CONNECTION_BIND, &|builder| {
            builder.connection_id(id);
        })
    };
    let stranger = Client::at("198.51.100.8:1").over(Transport::Tcp);
    assert_eq!(bind(&mut world, stranger).code(), Some(400));
    assert_eq!(bind(&mut world, alice(2)).code(), None);
}

#[test]
fn a_request_goes_to_the_worker_that_its_number_names() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let elsewhere = ConnectionId::new(WorkerId(5), 7);
    let request = client.sealed(&mut world, Method::CONNECTION_BIND, |builder| {
        builder.connection_id(elsewhere.0);
    });
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let mut bind = world.elsewhere.pop().unwrap();
    assert_eq!((bind.owner(), bind.connection()), (WorkerId(5), elsewhere));
    // There it has another name.
    let path = ClientPath { socket: SocketId(99), ..client.path };
    bind.came_by(path);
    let answer = world.server.turn_bind_away(&bind, &mut world.reply).unwrap();
    assert_eq!((answer.to, answer.error, answer.held), (path, true, true));
    client.decode(&request, world.reply[..answer.len.into()].to_vec()).refused(508);
}

#[test]
fn what_follows_a_connection_bind_is_held() {
    // 6062-5.4-04
    let mut world = tcp_world();
    let mut client = alice(1);
    let request = client.sealed(&mut world, Method::CONNECTION_BIND, |builder| {
        builder.connection_id(1);
    });
    // While the user is looked up, and then while the connection is.
    world.hold = true;
    let verdict = world.server.handle_client(
        world.now,
        &client.path,
        IpMeta::DEFAULT,
        &request,
        &mut world.reply,
    );
    assert_eq!(verdict, Verdict::Hold);
    assert!(matches!(world.server.poll_command(), Some(Command::FindUser { .. })));
    // A request that can be refused immediately does not wait.
    world.hold = false;
    let mut stranger = alice(2);
    let bare = stranger.bare(Method::CONNECTION_BIND, |_| ());
    assert_eq!(stranger.exchange(&mut world, &bare).code(), Some(401));
}
