//! Classic STUN (RFC 3489) with its setting: RFC 5389 §12.2, RFC 8489 §11.

use std::net::SocketAddr;

use stun_wire::{
    AttributeType, ChangeRequest, Class, ClassicMessage, Message, MessageBuilder, Method, value,
};
use turn_proto::{DiscoverySockets, DropReason, Policy, Refusal, UnauthenticatedBudget};
use turn_types::{ServerAddr, Transport};

use crate::support::*;

const ID: [u8; 16] = *b"no cookie is in!";

fn serving() -> Policy {
    Policy { rfc3489_clients: true, ..policy() }
}

/// Serves discovery at SERVER_V4 and three more.
fn discovering() -> Policy {
    let row = |ip: &str| [3478, 3479].map(|port| SocketAddr::new(self::ip(ip), port));
    let local = [row("203.0.113.1"), row("203.0.113.2")];
    assert_eq!(local[0][0], addr(SERVER_V4));
    Policy { discovery: vec![DiscoverySockets { local, public: local }], ..serving() }
}

fn message(class: Class, method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = vec![0; 2048];
    let mut builder = MessageBuilder::new_classic(&mut out, class, method, ID);
    write(&mut builder);
    let len = builder.finish().unwrap();
    out.truncate(len);
    out
}

fn binding(write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    message(Class::Request, Method::BINDING, write)
}

/// Returns the attribute types of a response in order. The response must repeat the complete id.
fn kinds(answer: &ClassicMessage<'_>) -> Vec<AttributeType> {
    assert_eq!(answer.transaction_id(), ID);
    assert_eq!(answer.method(), Method::BINDING);
    answer.attributes().map(|attribute| attribute.kind).collect()
}

fn address(answer: &ClassicMessage<'_>, kind: AttributeType) -> SocketAddr {
    value::address(answer.first(kind).unwrap()).unwrap()
}

fn code(answer: &[u8]) -> u16 {
    let answer = Message::parse_classic(answer).unwrap();
    assert_eq!(answer.class(), Class::Error);
    value::error_code(answer.first(AttributeType::ERROR_CODE).unwrap()).unwrap().0
}

/// classic-01, classic-05.
#[test]
fn a_classic_client_is_told_its_address_as_it_is() {
    let mut world = World::with(serving());
    for client in [Client::new(4000), Client::v6(4000)] {
        let bytes = world.from_client(&client.path, &binding(|_| ())).reply();
        let answer = Message::parse_classic(&bytes).unwrap();
        assert_eq!(answer.class(), Class::Success);
        let expected = [AttributeType::MAPPED_ADDRESS, AttributeType::SOURCE_ADDRESS];
        assert_eq!(kinds(&answer), expected);
        let five_tuple = client.path.five_tuple;
        assert_eq!(address(&answer, AttributeType::MAPPED_ADDRESS), five_tuple.client.0);
        assert_eq!(address(&answer, AttributeType::SOURCE_ADDRESS), five_tuple.server.0);
    }
}

/// SOURCE-ADDRESS is the address that the client can reach, also behind a 1:1 NAT.
#[test]
fn a_classic_client_is_told_the_public_address() {
    let mut policy = serving();
    policy.relay[0].local = ip("10.0.0.5");
    policy.relay[0].public = ip("203.0.113.1");
    let mut world = World::with(policy);
    let mut client = Client::new(4000);
    client.path.five_tuple.server = ServerAddr(addr("10.0.0.5:3478"));
    let bytes = world.from_client(&client.path, &binding(|_| ())).reply();
    let answer = Message::parse_classic(&bytes).unwrap();
    assert_eq!(address(&answer, AttributeType::SOURCE_ADDRESS), addr("203.0.113.1:3478"));
}

/// classic-02: dropped unless enabled, and over TCP always.
#[test]
fn without_the_switch_there_is_silence() {
    for (policy, client) in [
        (policy(), Client::new(4000)),
        (Policy { rfc3489_clients: false, ..discovering() }, Client::new(4000)),
        (serving(), Client::new(4000).over(Transport::Tcp)),
        (serving(), Client::new(4000).over(Transport::Tls)),
    ] {
        let mut world = World::with(policy);
        let fate = world.from_client(&client.path, &binding(|_| ()));
        assert_eq!(fate.dropped(), DropReason::MalformedStun);
    }
}

/// classic-03: RESPONSE-ADDRESS never, CHANGE-REQUEST where discovery is served.
#[test]
fn answers_go_to_nobody_else() {
    for policy in [serving(), discovering()] {
        let mut world = World::with(policy);
        let request = binding(|builder| {
            builder.address(AttributeType::RESPONSE_ADDRESS, addr("192.0.2.66:53"));
        });
        let bytes = world.from_client(&Client::new(4000).path, &request).reply();
        assert_eq!(code(&bytes), 420);
        assert_eq!(world.refusals(), [Refusal::UnknownAttributes]);
    }
}

/// classic-03: by the rules of RFC 3489 §8.1.
#[test]
fn a_change_is_granted_where_discovery_is_served() {
    let request = binding(|builder| {
        builder.change_request(ChangeRequest { change_ip: true, change_port: false });
    });
    let client = Client::new(4000);
    let bytes = World::with(serving()).from_client(&client.path, &request).reply();
    assert_eq!(code(&bytes), 420);

    let mut world = World::with(discovering());
    let Fate::ReplyFrom { from, to, bytes } = world.from_client(&client.path, &request) else {
        panic!("from here")
    };
    assert_eq!((from.0, to), (addr("203.0.113.2:3478"), client.path.five_tuple.client.0));
    let answer = Message::parse_classic(&bytes).unwrap();
    let expected = [
        AttributeType::MAPPED_ADDRESS,
        AttributeType::SOURCE_ADDRESS,
        AttributeType::CHANGED_ADDRESS,
    ];
    assert_eq!(kinds(&answer), expected);
    assert_eq!(address(&answer, AttributeType::SOURCE_ADDRESS), from.0);
    assert_eq!(address(&answer, AttributeType::CHANGED_ADDRESS), addr("203.0.113.2:3479"));

    let request = binding(|builder| {
        builder.attribute(AttributeType::CHANGE_REQUEST, &[0; 8]);
    });
    assert_eq!(code(&world.from_client(&client.path, &request).reply()), 400);
}

/// classic-04, 8489-11-01: whether or not there is the switch.
#[test]
fn over_dtls_a_request_without_the_cookie_gets_500() {
    for policy in [policy(), serving()] {
        let mut world = World::with(policy);
        let client = Client::new(4000).over(Transport::Dtls);
        let bytes = world.from_client(&client.path, &binding(|_| ())).reply();
        assert_eq!(code(&bytes), 500);
        assert_eq!(world.refusals(), [Refusal::NoCookie]);
        let indication = message(Class::Indication, Method::BINDING, |_| ());
        let fate = world.from_client(&client.path, &indication);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod);
    }
}

/// classic-06: RFC 3489 §11.2.10 defines no padding of the list.
#[test]
fn a_list_of_unknown_attributes_has_an_even_number() {
    let mut world = World::with(serving());
    for (count, listed) in [(1, 2), (2, 2), (3, 4), (100, 32)] {
        let request = binding(|builder| {
            for number in 0..count {
                builder.attribute(AttributeType(0x7000 + number), &[]);
            }
        });
        let bytes = world.from_client(&Client::new(4000).path, &request).reply();
        let answer = Message::parse_classic(&bytes).unwrap();
        let list = answer.first(AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
        assert_eq!(list.len(), 2 * listed, "{count}");
        let all = list.chunks(2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        let last = u16::min(count, 32) - 1;
        assert!(all.clone().eq((0..listed as u16).map(|n| 0x7000 + n.min(last))), "{count}");
    }
}

/// classic-07.
#[test]
fn only_binding_is_left_of_it() {
    let mut world = World::with(serving());
    let client = Client::new(4000);
    for method in [Method::SHARED_SECRET, Method::ALLOCATE, Method::REFRESH, Method::CHANNEL_BIND] {
        let fate = world.from_client(&client.path, &message(Class::Request, method, |_| ()));
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:?}");
    }
    for class in [Class::Success, Class::Error] {
        let fate = world.from_client(&client.path, &message(class, Method::BINDING, |_| ()));
        assert_eq!(fate.dropped(), DropReason::UnexpectedResponse, "{class:?}");
    }
}

/// Optional attributes of RFC 3489 clients, as USERNAME, are ignored; malformed messages are
/// dropped.
#[test]
fn known_attributes_are_ignored_and_noise_is_dropped() {
    let mut world = World::with(serving());
    let client = Client::new(4000);
    let request = binding(|builder| {
        builder.username("alice").attribute(AttributeType::PASSWORD, b"1234");
    });
    let bytes = world.from_client(&client.path, &request).reply();
    assert_eq!(Message::parse_classic(&bytes).unwrap().class(), Class::Success);

    let mut overrun = binding(|builder| {
        builder.username("alice");
    });
    overrun[23] = 0xFF;
    let fate = world.from_client(&client.path, &overrun);
    assert_eq!(fate.dropped(), DropReason::MalformedStun);
}

#[test]
fn classic_clients_are_unauthenticated() {
    let policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 4 }, ..discovering() };
    let mut world = World::with(policy);
    let client = Client::new(4000);
    let changed = binding(|builder| {
        builder.change_request(ChangeRequest { change_ip: true, change_port: true });
    });
    world.from_client(&client.path, &changed);
    world.from_client(&client.path, &binding(|_| ())).reply();
    for request in [
        changed,
        binding(|_| ()),
        binding(|builder| {
            builder.attribute(AttributeType(0x7000), &[]);
        }),
    ] {
        let fate = world.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::UnauthenticatedBudget);
    }
}
