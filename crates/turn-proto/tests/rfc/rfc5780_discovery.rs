//! RFC 5780: NAT behaviour discovery, at four addresses of a family.

use std::net::SocketAddr;

use stun_wire::{AttributeType, ChangeRequest, Message, MessageBuilder, Method, value};
use turn_proto::{
    AlternateServers, DiscoverySockets, DropReason, Policy, Refusal, UnauthenticatedBudget,
};
use turn_types::{ServerAddr, Transport};

use crate::support::*;

/// By address and by port. The first is where the other tests' clients go.
const V4: [[&str; 2]; 2] =
    [[SERVER_V4, "203.0.113.1:3479"], ["203.0.113.2:3478", "203.0.113.2:3479"]];
const V6: [[&str; 2]; 2] =
    [[SERVER_V6, "[2001:db8:1::1]:3479"], ["[2001:db8:1::2]:3478", "[2001:db8:1::2]:3479"]];

const CORNERS: [(usize, usize); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];
const CHANGES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

fn square(at: [[&str; 2]; 2]) -> DiscoverySockets {
    let local = at.map(|row| row.map(addr));
    DiscoverySockets { local, public: local }
}

fn discovering() -> Policy {
    Policy { discovery: vec![square(V4), square(V6)], ..policy() }
}

/// Response with the source and the destination.
struct Answered {
    bytes: Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
}

impl Answered {
    fn message(&self) -> Message<'_> {
        Message::parse(&self.bytes).unwrap()
    }

    /// An address as it is, not XORed.
    fn address(&self, kind: AttributeType) -> Option<SocketAddr> {
        self.message().first(kind).map(|value| value::address(value).unwrap())
    }

    fn code(&self) -> Option<u16> {
        let value = self.message().first(AttributeType::ERROR_CODE)?;
        Some(value::error_code(value).unwrap().0)
    }
}

fn ask(
    world: &mut World,
    client: &mut Client,
    write: impl FnOnce(&mut MessageBuilder<'_>),
) -> Answered {
    let request = client.bare(Method::BINDING, write);
    exchange(world, client, &request)
}

fn exchange(world: &mut World, client: &Client, request: &[u8]) -> Answered {
    let five_tuple = client.path.five_tuple;
    match world.from_client(&client.path, request) {
        Fate::Reply(bytes) => {
            Answered { bytes, from: five_tuple.server.0, to: five_tuple.client.0 }
        }
        Fate::ReplyFrom { from: ServerAddr(from), to, bytes } => Answered { bytes, from, to },
        other @ (Fate::ToPeer { .. }
        | Fate::ToClient { .. }
        | Fate::Wait
        | Fate::Queued
        | Fate::Drop(_)) => {
            panic!("{other:?}")
        }
    }
}

fn change(change_ip: bool, change_port: bool) -> impl FnOnce(&mut MessageBuilder<'_>) {
    move |builder| {
        builder.change_request(ChangeRequest { change_ip, change_port });
    }
}

fn client_of(at: &str) -> Client {
    let mut client = if addr(at).is_ipv4() { Client::new(4000) } else { Client::v6(4000) };
    client.path.five_tuple.server = ServerAddr(addr(at));
    client
}

/// 5780-6.1-03, 5780-6.1-04, 5780-6.1-05, 5780-7-01: table 1 of RFC 5780, from each of the
/// addresses.
#[test]
fn the_answer_comes_from_where_it_was_asked_to() {
    let mut world = World::with(discovering());
    for at in [V4, V6] {
        for ((ip, port), (change_ip, change_port)) in
            CORNERS.iter().flat_map(|corner| CHANGES.map(|change| (*corner, change)))
        {
            let mut client = client_of(at[ip][port]);
            let answered = ask(&mut world, &mut client, change(change_ip, change_port));
            let from = at[ip ^ usize::from(change_ip)][port ^ usize::from(change_port)];
            assert_eq!(answered.from, addr(from), "{} {change_ip} {change_port}", at[ip][port]);
            assert_eq!(answered.to, client.path.five_tuple.client.0);
            assert_eq!(answered.address(AttributeType::RESPONSE_ORIGIN), Some(addr(from)));
            let other = addr(at[1 - ip][1 - port]);
            assert_eq!(answered.address(AttributeType::OTHER_ADDRESS), Some(other));
        }
    }
}

/// 5780-6.1-01, 5780-6.1-02: without a request for it as well.
#[test]
fn every_binding_has_the_other_address_and_both_mapped_addresses() {
    let mut world = World::with(discovering());
    for mut client in [client_of(V4[0][0]), client_of(V6[1][1]).over(Transport::Tcp)] {
        let answered = ask(&mut world, &mut client, |_| ());
        let own = client.path.five_tuple.client.0;
        let message = answered.message();
        let xored = message.first(AttributeType::XOR_MAPPED_ADDRESS).unwrap();
        assert_eq!(value::xor_address(xored, message.transaction_id()), Ok(own));
        assert_eq!(answered.address(AttributeType::MAPPED_ADDRESS), Some(own));
        assert_eq!(
            answered.address(AttributeType::RESPONSE_ORIGIN),
            Some(client.path.five_tuple.server.0)
        );
        assert!(answered.address(AttributeType::OTHER_ADDRESS).is_some());
        assert!(message.first(AttributeType::SOFTWARE).is_none());
    }
}

/// 5780-6.1-04 behind a 1:1 NAT: the addresses are the public addresses.
#[test]
fn behind_nat_clients_are_told_the_public_addresses() {
    let mut policy = discovering();
    policy.discovery[0].public =
        [["192.0.2.1:13478", "192.0.2.1:13479"], ["192.0.2.2:13478", "192.0.2.2:13479"]]
            .map(|row| row.map(addr));
    let mut world = World::with(policy);
    let answered = ask(&mut world, &mut client_of(V4[0][0]), change(true, false));
    assert_eq!(answered.from, addr(V4[1][0]), "sockets are bound to what the host has");
    let origin = answered.address(AttributeType::RESPONSE_ORIGIN);
    assert_eq!(origin, Some(addr("192.0.2.2:13478")));
    let other = answered.address(AttributeType::OTHER_ADDRESS);
    assert_eq!(other, Some(addr("192.0.2.2:13479")));
}

/// 5780-6-02, 5780-7.4-01, 5780-7.5-01, 5780-7.5-02: discovery is not served without a second
/// address. It is neither served at other addresses of the server, nor over TLS or DTLS, which hide
/// the addresses.
#[test]
fn without_a_second_address_nothing_of_it_is_known() {
    let aside = "203.0.113.3:3478";
    let cases = [
        (policy(), client_of(V4[0][0])),
        (discovering(), client_of(aside)),
        (discovering(), client_of(V4[0][0]).over(Transport::Dtls)),
        (discovering(), client_of(V4[0][0]).over(Transport::Tls)),
        (Policy { discovery: vec![square(V6)], ..policy() }, client_of(V4[0][0])),
    ];
    for (policy, mut client) in cases {
        let mut world = World::with(policy);
        let plain = ask(&mut world, &mut client, |_| ());
        for kind in [
            AttributeType::OTHER_ADDRESS,
            AttributeType::RESPONSE_ORIGIN,
            AttributeType::MAPPED_ADDRESS,
        ] {
            assert_eq!(plain.message().first(kind), None, "{kind:?}");
        }
        for (kind, len) in [
            (AttributeType::CHANGE_REQUEST, 4),
            (AttributeType::RESPONSE_PORT, 4),
            (AttributeType::PADDING, 64),
        ] {
            let answered = ask(&mut world, &mut client, |builder| {
                builder.attribute(kind, &vec![0; len]);
            });
            assert_eq!(answered.code(), Some(420), "{kind:?}");
            let unknown = answered.message().first(AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
            assert_eq!(unknown, kind.0.to_be_bytes());
            assert_eq!(answered.from, client.path.five_tuple.server.0);
        }
    }
}

/// Unknown attributes stay unknown, and known ones are not listed.
#[test]
fn other_attributes_stay_unknown() {
    let mut world = World::with(discovering());
    let answered = ask(&mut world, &mut client_of(V4[0][0]), |builder| {
        builder.change_request(ChangeRequest { change_ip: true, change_port: true });
        builder.attribute(AttributeType(0x7ABC), &[]);
    });
    assert_eq!(answered.code(), Some(420));
    let unknown = answered.message().first(AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
    assert_eq!(unknown, 0x7ABC_u16.to_be_bytes());
    assert_eq!(answered.from, addr(V4[0][0]), "refusals leave from where the request came to");
}

/// 5780-7.2-01: only in Binding requests.
#[test]
fn only_binding_knows_these_attributes() {
    let mut world = World::with(discovering());
    let mut client = client_of(V4[0][0]);
    client
        .try_allocate(&mut world, |builder| {
            builder.change_request(ChangeRequest { change_ip: true, change_port: false });
        })
        .refused(420);
}

/// 5780-7.2-01: a response is always sent on its connection.
#[test]
fn over_tcp_an_answer_cannot_come_from_elsewhere() {
    let mut world = World::with(discovering());
    let mut client = client_of(V4[0][0]).over(Transport::Tcp);
    let with = |kind, value: &'static [u8]| {
        move |builder: &mut MessageBuilder<'_>| {
            builder.attribute(kind, value);
        }
    };
    for (kind, value) in [
        (AttributeType::CHANGE_REQUEST, &[0, 0, 0, 2][..]),
        (AttributeType::RESPONSE_PORT, &[0x40, 0, 0, 0]),
        (AttributeType::PADDING, &[0; 8]),
    ] {
        let answered = ask(&mut world, &mut client, with(kind, value));
        assert_eq!(answered.code(), Some(400), "{kind:?}");
        assert_eq!(world.refusals(), [Refusal::BadRequest]);
    }
    let answered = ask(&mut world, &mut client, with(AttributeType::CHANGE_REQUEST, &[0; 4]));
    assert_eq!(answered.code(), None, "to be answered from here is no change");
}

/// 5780-7.5-01, 5780-7.5-02: the same address, another port, none of the system's.
#[test]
fn an_answer_goes_to_the_port_that_was_asked_for() {
    let mut world = World::with(discovering());
    let mut client = client_of(V4[0][0]);
    for port in [1024, 40_000, 65_535] {
        let answered = ask(&mut world, &mut client, |builder| {
            builder.response_port(port);
        });
        assert_eq!(answered.to, SocketAddr::new(client.path.five_tuple.client.ip(), port));
        assert_eq!(answered.from, addr(V4[0][0]));
        let mapped = answered.address(AttributeType::MAPPED_ADDRESS);
        assert_eq!(mapped, Some(client.path.five_tuple.client.0), "where the request came from");
    }
    for port in [0, 53, 1023] {
        let answered = ask(&mut world, &mut client, |builder| {
            builder.response_port(port);
        });
        assert_eq!((answered.code(), answered.to.port()), (Some(400), 4000), "port {port}");
    }
}

/// 5780-6.1-06, 5780-6.1-07, 5780-7.6-01: the response to PADDING has equal PADDING, up to a link's
/// MTU. It never has more, so only the addresses make the response longer than the request.
#[test]
fn padding_is_answered_with_padding() {
    let mut world = World::with(discovering());
    for at in [V4, V6] {
        let mut client = client_of(at[0][0]);
        for (sent, padding) in
            [(0, 0), (3, 0), (4, 4), (1479, 1476), (1480, 1480), (1500, 1500), (4000, 1500)]
        {
            let request = padded(&mut client, sent);
            let answered = exchange(&mut world, &client, &request);
            let value = answered.message().first(AttributeType::PADDING).unwrap().to_vec();
            assert_eq!(value, vec![0; padding], "for {sent}");
            let plain = ask(&mut world, &mut client, |_| ()).bytes.len();
            assert_eq!(answered.bytes.len(), plain + 4 + padding);
            assert_eq!(answered.from, addr(at[0][0]));
        }
    }
}

fn padded(client: &mut Client, len: usize) -> Vec<u8> {
    let mut out = vec![0; 65_507];
    let id = client.next_transaction();
    let class = stun_wire::Class::Request;
    let mut builder = MessageBuilder::new(&mut out, class, Method::BINDING, id);
    builder.attribute(AttributeType::PADDING, &vec![0xA5; len]);
    let len = builder.finish().unwrap();
    out.truncate(len);
    out
}

/// 5780-6.1-03 and 5780-6.1-06 together.
#[test]
fn padding_comes_from_elsewhere_too() {
    let mut world = World::with(discovering());
    let answered = ask(&mut world, &mut client_of(V4[0][0]), |builder| {
        builder.change_request(ChangeRequest { change_ip: true, change_port: true });
        builder.attribute(AttributeType::PADDING, &[0; 64]);
    });
    assert_eq!(answered.from, addr(V4[1][1]));
    assert_eq!(answered.message().first(AttributeType::PADDING), Some(&[0; 64][..]));
}

/// 5780-6.1-08: a long response goes only to the source of its request.
#[test]
fn padding_and_response_port_are_refused_together() {
    let mut world = World::with(discovering());
    let answered = ask(&mut world, &mut client_of(V4[0][0]), |builder| {
        builder.attribute(AttributeType::PADDING, &[0; 64]);
        builder.response_port(40_000);
    });
    assert_eq!((answered.code(), answered.to.port()), (Some(400), 4000));
}

#[test]
fn malformed_attributes_are_refused() {
    let mut world = World::with(discovering());
    for (kind, len) in [
        (AttributeType::CHANGE_REQUEST, 0),
        (AttributeType::CHANGE_REQUEST, 8),
        (AttributeType::RESPONSE_PORT, 0),
        (AttributeType::RESPONSE_PORT, 8),
    ] {
        let answered = ask(&mut world, &mut client_of(V4[0][0]), |builder| {
            builder.attribute(kind, &vec![0xFF; len]);
        });
        assert_eq!(answered.code(), Some(400), "{kind:?} of {len}");
    }
}

/// 5780-6.1-09: Binding is served here, even while clients of TURN are redirected.
#[test]
fn nobody_is_sent_elsewhere_for_discovery() {
    let alternates = AlternateServers::of(vec![addr("203.0.113.99:3478")]);
    let mut world = World::with(Policy { alternates, ..discovering() });
    let answered = ask(&mut world, &mut client_of(V4[0][0]), change(true, true));
    assert_eq!(answered.code(), None);
    assert!(answered.message().first(AttributeType::ALTERNATE_SERVER).is_none());
}

/// The response is charged to the budget, regardless of its source and destination. Half of the
/// budget is for Binding, and a burst of one second is available immediately.
#[test]
fn strangers_have_one_budget_for_all_addresses() {
    let policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 8 }, ..discovering() };
    let mut world = World::with(policy);
    for (ip, port) in CORNERS {
        ask(&mut world, &mut client_of(V4[ip][port]), change(true, true));
    }
    let mut client = client_of(V4[0][0]);
    for request in [
        client.bare(Method::BINDING, change(true, false)),
        client.bare(Method::BINDING, |builder| {
            builder.response_port(40_000);
        }),
        padded(&mut client, 1500),
        client.bare(Method::BINDING, |builder| {
            builder.response_port(53);
        }),
    ] {
        let fate = world.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::UnauthenticatedBudget);
    }
}
