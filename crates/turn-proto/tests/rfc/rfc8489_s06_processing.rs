//! RFC 8489 §6: processing of a message before the rules of its method apply, and the form of
//! responses.

use stun_wire::{
    ATTRIBUTES_MAX, AttributeType, Class, MessageBuilder, Method, TransactionId, value,
};
use turn_proto::limits::REQUEST_BYTES_MAX;
use turn_proto::{DropReason, Refusal};
use turn_types::{Transport, UnixSeconds};

use crate::support::forge::{Forge, append};
use crate::support::*;

const UNKNOWN: AttributeType = AttributeType(0x7E05);
const UNKNOWN_TOO: AttributeType = AttributeType(0x0033);
const OPTIONAL: AttributeType = AttributeType(0xFE01);

fn binding(client: &mut Client) -> Vec<u8> {
    client.bare(Method::BINDING, |_| ())
}

/// Checks that a valid Binding request gets the right response.
fn still_serves(world: &mut World, client: &mut Client) {
    let request = binding(client);
    let reply = client.exchange(world, &request);
    assert_eq!((reply.code(), reply.mapped()), (None, client.path.five_tuple.client.0));
}

/// 8489-5-02, 8489-5-04, 8489-5-05, 8489-6.3-02, 8656-5-10: silence for anything but STUN.
#[test]
fn what_is_malformed_is_dropped_in_silence() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let good = binding(&mut client);
    let attribute = client.bare(Method::BINDING, |b| {
        b.software("abcd");
    });
    let change = |base: &[u8], at: usize, to: u8| {
        let mut bytes = base.to_vec();
        bytes[at] = to;
        bytes
    };
    for (name, bytes, reason) in [
        ("top bit set", change(&good, 0, 0x80), DropReason::NotStun),
        ("both top bits set", change(&good, 0, 0xC0), DropReason::NotStun),
        ("cookie changed by one bit", change(&good, 7, 0x43), DropReason::MalformedStun),
        ("length not a multiple of four", change(&good, 3, 2), DropReason::MalformedStun),
        ("length beyond the datagram", change(&good, 3, 8), DropReason::MalformedStun),
        ("length short of the datagram", change(&attribute, 3, 4), DropReason::MalformedStun),
        ("attribute past the message", change(&attribute, 22, 0xFF), DropReason::MalformedStun),
        ("half a header", good[..19].to_vec(), DropReason::MalformedStun),
        ("nothing", Vec::new(), DropReason::NotStun),
    ] {
        assert_eq!(world.from_client(&client.path, &bytes).dropped(), reason, "{name}");
    }
    // TURN has no RFC 3489 fallback either.
    let allocate = client.bare(Method::ALLOCATE, |_| ());
    let fate = world.from_client(&client.path, &change(&allocate, 4, 0));
    assert_eq!(fate.dropped(), DropReason::MalformedStun);
    still_serves(&mut world, &mut client);
}

/// 8489-5-03, 8489-5-06: method and transaction of the request, class success or error.
#[test]
fn an_answer_has_the_method_and_the_transaction_of_its_request() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = binding(&mut client);
    let reply = client.exchange(&mut world, &request);
    assert_eq!(reply.bytes[..2], [0x01, 0x01]);
    assert_eq!(reply.bytes[4..20], request[4..20]);
    let request = client.bare(Method::ALLOCATE, |_| ());
    assert_eq!(client.exchange(&mut world, &request).bytes[..2], [0x01, 0x13]);
    assert_eq!(client.try_allocate(&mut world, |_| ()).bytes[..2], [0x01, 0x03]);
}

/// Large requests would take as much time as a hundred requests, before the sender is known.
#[test]
fn requests_have_a_bounded_size_and_number_of_attributes() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let mut forge = |value: usize, count: usize| {
        let mut forge = Forge::empty(&mut client, Method::BINDING);
        for _ in 0..count {
            forge = forge.and(AttributeType(0xFE01), vec![7; value]);
        }
        (client.path, forge.bare())
    };
    let longest = REQUEST_BYTES_MAX - 20 - 4;
    for (value, count, is_served) in [
        (longest, 1, true),
        (longest + 4, 1, false),
        (0, ATTRIBUTES_MAX, true),
        (0, ATTRIBUTES_MAX + 1, false),
    ] {
        let (path, request) = forge(value, count);
        let fate = world.from_client(&path, &request);
        if is_served {
            assert_eq!(fate.reply()[..2], [0x01, 0x01], "{count} of {value}");
        } else {
            assert_eq!(fate.dropped(), DropReason::MalformedStun, "{count} of {value}");
        }
    }
}

/// 8489-6.1-01, 8489-6.1-02: no error response is too large for a path of unknown MTU, for any
/// length of the operator's texts and of the request.
#[test]
fn error_answers_fit_a_packet_of_576_bytes() {
    let mut policy = policy();
    policy.realm = (*"r".repeat(127)).into();
    policy.software = Some("s".repeat(127).into());
    let mut world = World::with(policy);
    let mut client = Client::new(1000);
    let bare = Forge::empty(&mut client, Method::ALLOCATE).bare();
    assert_eq!(client.exchange(&mut world, &bare).code(), Some(401));
    let nonce = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::USERNAME, "u".repeat(500))
        .with(AttributeType::REALM, "r".repeat(127))
        .with(AttributeType::NONCE, "n".repeat(127));
    let half = nonce.clone().without(AttributeType::NONCE).sealed_both(&client.key());
    assert_eq!(client.exchange(&mut world, &half).code(), Some(400));
    let foreign = nonce.sealed_both(&client.key());
    assert_eq!(client.exchange(&mut world, &foreign).code(), Some(438));
    let mut unknown = Forge::empty(&mut client, Method::BINDING);
    for kind in 0x7000..0x7000 + ATTRIBUTES_MAX as u16 {
        unknown = unknown.and(AttributeType(kind), []);
    }
    let reply = client.exchange(&mut world, &unknown.bare());
    // Reply::decode has checked the length of each response.
    assert_eq!(reply.code(), Some(420));
}

/// 8489-6.3-01, 8656-5-01: authentication precedes unknown attributes, and both precede the rules
/// of the method.
#[test]
fn the_checks_run_in_the_rfcs_order() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let unknown = |forge: Forge| forge.with(UNKNOWN, [1]);
    let bare = unknown(Forge::empty(&mut client, Method::ALLOCATE)).bare();
    assert_eq!(client.exchange(&mut world, &bare).code(), Some(401));
    let permission = Forge::empty(&mut client, Method::CREATE_PERMISSION).bare();
    assert_eq!(client.exchange(&mut world, &permission).code(), Some(401), "not 437");
    // No transport (400) on a 5-tuple without allocation (437), but unknown attributes are reported
    // first.
    for method in [Method::ALLOCATE, Method::REFRESH] {
        let reply = client.ask(&mut world, method, |b| {
            b.attribute(UNKNOWN, &[1]);
        });
        assert_eq!(reply.refused(420).unknown(), [UNKNOWN]);
    }
}

/// 8489-6.3-02, 8656-17-01, 8656-17-02: an unknown method, or a class that the method does not
/// have.
#[test]
fn methods_and_classes_that_are_not_ours_are_dropped_in_silence() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    for method in [0x0FF, 0x000, 0x002, 0x005, 0x00A, 0x00B, 0x00C] {
        let bytes = client.bare(Method::new(method).unwrap(), |_| ());
        let fate = world.from_client(&client.path, &bytes);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:#x}");
    }
    for method in [Method::SEND, Method::DATA] {
        let bytes = client.bare(method, |_| ());
        let fate = world.from_client(&client.path, &bytes);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:?} as a request");
    }
    for method in [
        Method::ALLOCATE,
        Method::REFRESH,
        Method::CREATE_PERMISSION,
        Method::CHANNEL_BIND,
        Method::DATA,
    ] {
        let bytes = client.indication(method, |_| ());
        let fate = world.from_client(&client.path, &bytes);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:?} as an indication");
    }
}

/// 8489-6.3-03: responses without a request of this server.
#[test]
fn responses_are_dropped_in_silence() {
    let mut world = World::new();
    let client = Client::new(1000);
    for class in [Class::Success, Class::Error] {
        for method in [Method::BINDING, Method::ALLOCATE, Method::DATA] {
            let mut out = [0; 100];
            let builder = MessageBuilder::new(&mut out, class, method, TransactionId([1; 12]));
            let len = builder.finish().unwrap();
            let fate = world.from_client(&client.path, &out[..len]);
            assert_eq!(fate.dropped(), DropReason::UnexpectedResponse, "{class:?} {method:?}");
        }
    }
}

/// 8489-6.3-04, 8489-6.3-05: unknown optional attributes, and known ones out of place.
#[test]
fn what_need_not_be_understood_is_ignored() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::BINDING)
        .with(OPTIONAL, [1, 2, 3])
        .with(AttributeType::LIFETIME, [0, 0, 0, 9])
        .with(AttributeType::CHANNEL_NUMBER, [0x40, 0, 0, 0])
        .with(AttributeType::DATA, [])
        .bare();
    assert_eq!(client.exchange(&mut world, &request).code(), None);
    let reply = client.try_allocate(&mut world, |b| {
        b.attribute(OPTIONAL, &[1]).attribute(AttributeType::CHANNEL_NUMBER, &[0]);
    });
    reply.success();
}

/// 8489-6.3.1-01, 8489-14.13-01: all unknown required attributes are named, each once, nothing
/// else.
#[test]
fn unknown_required_attributes_are_named() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::BINDING)
        .and(UNKNOWN, [1, 2, 3])
        .and(OPTIONAL, [1])
        .and(AttributeType::LIFETIME, [0, 0, 0, 9])
        .and(UNKNOWN_TOO, [])
        .and(UNKNOWN, [])
        .bare();
    let reply = client.exchange(&mut world, &request);
    assert_eq!((reply.code(), reply.unknown()), (Some(420), vec![UNKNOWN, UNKNOWN_TOO]));
    for count in [1, 2, 3, 5] {
        let mut forge = Forge::empty(&mut client, Method::BINDING);
        for kind in 0..count {
            forge = forge.and(AttributeType(0x7000 + kind), []);
        }
        let reply = client.exchange(&mut world, &forge.bare());
        let list = reply.first(AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
        assert_eq!(list.len(), 2 * usize::from(count), "no filling up");
    }
}

/// 8489-6.3.1-02, 8489-6.3.1-03, 8656-5-14, 8656-7.2-32: a retransmission leaves both sides as if
/// it had been sent once.
#[test]
fn a_retransmitted_request_is_one_request() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = binding(&mut client);
    let replies: Vec<_> = (0..3).map(|_| client.exchange(&mut world, &request).bytes).collect();
    assert!(replies.iter().all(|reply| *reply == replies[0]));

    let request = client.sealed(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(17);
    });
    let relayed: Vec<_> =
        (0..3).map(|_| client.exchange(&mut world, &request).success().relayed()).collect();
    assert!(relayed.iter().all(|addresses| *addresses == relayed[0]));
    assert_eq!((world.server.allocation_count(), world.opened), (1, 1));

    for method in [Method::CREATE_PERMISSION, Method::CHANNEL_BIND, Method::REFRESH] {
        let request = client.sealed(&mut world, method, |b| {
            b.attribute(AttributeType::CHANNEL_NUMBER, &[0x40, 0, 0, 0]);
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
        });
        let replies: Vec<_> =
            (0..3).map(|_| client.exchange(&mut world, &request).success().bytes).collect();
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{method:?}");
    }
    let record = world.server.allocations().next().unwrap();
    assert_eq!((record.permissions, record.channels), (1, 1));
}

/// 8489-6.3.1-03: an Allocate that is sent again while the first is on its way makes nothing twice.
#[test]
fn a_request_on_its_way_is_not_taken_twice() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = client.sealed(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(17);
    });
    world.hold = true;
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let again = world.from_client(&client.path, &request);
    assert_eq!(again.dropped(), DropReason::AlreadyPending);
    let answers = world.release();
    assert_eq!(answers.len(), 1);
    client.decode(&request, answers[0].1.clone()).success();
    assert_eq!((world.server.allocation_count(), world.opened, world.looked_up), (1, 1, 1));
}

/// 8489-6.3.1-04: unauthenticated sources cause no state.
#[test]
fn nothing_is_kept_for_requests_that_are_not_authenticated() {
    let mut world = World::new();
    for port in 1..=20_000 {
        let mut client = Client::new(port);
        let request = client.bare(Method::ALLOCATE, |b| {
            b.requested_transport(17);
        });
        assert_eq!(client.exchange(&mut world, &request).code(), Some(401));
    }
    assert_eq!(world.server.poll_timeout(), None, "nothing that could run out");
    assert_eq!((world.server.allocation_count(), world.looked_up, world.opened), (0, 0, 0));
}

/// 8489-6.3.1.1-01, 8489-6.3.1.1-02, 8489-14.8-03, 8489-18.5-01: ERROR-CODE with its phrase.
#[test]
fn errors_have_a_code_and_the_registered_phrase() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = client.bare(Method::ALLOCATE, |_| ());
    let reply = client.exchange(&mut world, &request);
    let (code, phrase) =
        value::error_code(reply.first(AttributeType::ERROR_CODE).unwrap()).unwrap();
    assert_eq!((code, phrase), (401, "Unauthenticated"));
    // Every other error of every test is compared with the registry by Reply::decode.
    let reply = client.refresh(&mut world, None);
    let (code, phrase) =
        value::error_code(reply.first(AttributeType::ERROR_CODE).unwrap()).unwrap();
    assert_eq!((code, phrase), (437, "Allocation Mismatch"));
}

/// 8489-6.3.1.1-04, 8489-16.1.2-01, 8489-14.14-01, 8656-5-08: SOFTWARE for authenticated clients,
/// if at all.
#[test]
fn software_is_told_to_users_and_can_be_switched_off() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let software = |reply: &Reply| reply.first(AttributeType::SOFTWARE).map(<[u8]>::to_vec);
    let told = Some(b"Turnpike".to_vec());
    assert_eq!(software(&client.refresh(&mut world, None).refused(437)), told);
    assert_eq!(software(&client.try_allocate(&mut world, |_| ()).success()), told);
    assert_eq!(software(&client.refresh(&mut world, None).success()), told);
    // A response to an unauthenticated source has the minimum size.
    let request = binding(&mut client);
    assert_eq!(software(&client.exchange(&mut world, &request)), None);
    let request = client.bare(Method::ALLOCATE, |_| ());
    assert_eq!(software(&client.exchange(&mut world, &request)), None);

    world.apply(turn_proto::Policy { software: None, ..world.policy.clone() });
    assert_eq!(software(&client.refresh(&mut world, None).success()), None);
}

/// 8489-6.3.1.1-05, 8489-14.2-01: XOR-MAPPED-ADDRESS is where the request came from.
#[test]
fn a_client_is_told_its_own_address() {
    let mut world = World::new();
    for address in ["198.51.100.7:1", "198.51.100.7:65535", "[2001:db8:7::7]:1000"] {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Dtls] {
            let mut client = Client::at(address).over(transport);
            still_serves(&mut world, &mut client);
            let reply = client.try_allocate(&mut world, |_| ()).success();
            assert_eq!(reply.mapped(), addr(address));
            client.refresh(&mut world, Some(0)).success();
        }
    }
}

/// 8489-6.3.1.2-01, 8656-7.2-33: a response that had to wait is sent on the path of its request. An
/// immediate response is for the path of the request too.
#[test]
fn an_answer_leaves_by_the_path_of_its_request() {
    let mut world = World::new();
    let mut clients = [Client::new(1000), Client::new(1000), Client::v6(1000)];
    clients[1].path.five_tuple.server.0 = addr("203.0.113.1:3479");
    clients[1].path.socket = turn_types::SocketId(9);
    let requests: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            client.sealed(&mut world, Method::ALLOCATE, |b| {
                b.requested_transport(17);
            })
        })
        .collect();
    world.hold = true;
    for (client, request) in clients.iter().zip(&requests) {
        assert!(matches!(world.from_client(&client.path, request), Fate::Wait));
    }
    let answers = world.release();
    assert_eq!(answers.len(), 3);
    for (client, request) in clients.iter().zip(&requests) {
        let (_, bytes) = answers.iter().find(|(path, _)| *path == client.path).unwrap();
        client.decode(request, bytes.clone()).success();
    }
}

/// 8489-6.3.2-01: an indication that we do not understand in full.
#[test]
fn an_indication_with_an_unknown_required_attribute_is_dropped() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    let send = |client: &mut Client, kind: Option<AttributeType>| {
        client.indication(Method::SEND, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER)).data(b"x");
            if let Some(kind) = kind {
                b.attribute(kind, &[1]);
            }
        })
    };
    let bytes = send(&mut client, Some(UNKNOWN));
    let fate = world.from_client(&client.path, &bytes);
    assert_eq!(fate.dropped(), DropReason::UnknownAttribute);
    let bytes = send(&mut client, Some(OPTIONAL));
    assert_eq!(world.from_client(&client.path, &bytes).to_peer(), b"x");
    let bytes = send(&mut client, None);
    assert_eq!(world.from_client(&client.path, &bytes).to_peer(), b"x");
}

/// 8489-6.3.2-02: a keep-alive.
#[test]
fn a_binding_indication_has_no_effect() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    let before = world.server.allocations().next().unwrap();
    let bytes = client.indication(Method::BINDING, |_| ());
    let fate = world.from_client(&client.path, &bytes);
    assert_eq!(fate.dropped(), DropReason::BindingIndication);
    assert_eq!(world.server.allocations().next().unwrap(), before);
}

/// 8489-6.3-06, 8489-7-01, 8489-12-04, 8656-5-09: FINGERPRINT may be there; a wrong one means
/// silence.
#[test]
fn fingerprint_is_optional_and_checked() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    still_serves(&mut world, &mut client);
    client.fingerprint = true;
    still_serves(&mut world, &mut client);
    client.try_allocate(&mut world, |_| ()).success();
    let request = binding(&mut client);
    for bit in 0..32 {
        let mut wrong = request.clone();
        let at = wrong.len() - 4 + bit / 8;
        wrong[at] ^= 1 << (bit % 8);
        let fate = world.from_client(&client.path, &wrong);
        assert_eq!(fate.dropped(), DropReason::BadFingerprint);
    }
    // A FINGERPRINT that is not the last attribute is ignored.
    let not_last = append(request, OPTIONAL, &[1, 2, 3, 4]);
    assert_eq!(world.from_client(&client.path, &not_last).dropped(), DropReason::BadFingerprint);
}

/// 8489-14-02: the first of an attribute counts.
#[test]
fn of_a_repeated_attribute_the_first_counts() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut world, |b| {
        b.lifetime(1200).lifetime(1800);
    });
    assert_eq!(reply.success().lifetime(), 1200);
}

/// 8489-14-01: the value of padding is ignored.
#[test]
fn padding_of_any_value_is_accepted() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let mut request =
        Forge::empty(&mut client, Method::BINDING).with(AttributeType::SOFTWARE, "five!").bare();
    let len = request.len();
    request[len - 3..].fill(0xFF);
    assert_eq!(client.exchange(&mut world, &request).code(), None);
}

/// 8489-12-02: Binding requires no credentials and is never redirected, with or without
/// credentials.
#[test]
fn binding_needs_no_credentials() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    still_serves(&mut world, &mut client);
    let forged = Forge::new(&mut client, &mut world, Method::BINDING)
        .with(AttributeType::USERNAME, "nobody")
        .sealed_both(&stun_wire::IntegrityKey::new(b"wrong"));
    assert_eq!(client.exchange(&mut world, &forged).code(), None);
}

/// Unauthenticated responses are bounded for each prefix, including Binding. An authenticated
/// client is not limited.
#[test]
fn strangers_have_a_budget_and_users_do_not() {
    let mut policy = policy();
    policy.unauthenticated.per_second = 4; // two Bindings and two challenges
    let mut world = World::with(policy);
    let mut client = Client::new(1000);
    client.try_allocate(&mut world, |_| ()).success(); // one of two: the 401
    let mut flood = Client::new(2000);
    let answered = |world: &mut World, client: &mut Client| {
        let request = binding(client);
        matches!(world.from_client(&client.path, &request), Fate::Reply(_))
    };
    assert_eq!((0..10).filter(|_| answered(&mut world, &mut flood)).count(), 2);
    let request = flood.bare(Method::ALLOCATE, |_| ());
    world.from_client(&flood.path, &request).reply();
    let fate = world.from_client(&flood.path, &request);
    assert_eq!(fate.dropped(), DropReason::UnauthenticatedBudget);
    for _ in 0..10 {
        client.refresh(&mut world, None).success();
    }
    let mut elsewhere = Client::at("198.51.101.7:1000");
    assert!(answered(&mut world, &mut elsewhere), "another /24");
    world.advance(secs(1));
    assert!(answered(&mut world, &mut flood), "a second later");
}

/// A clock that is set back makes nonces useless, not users.
#[test]
fn a_clock_set_back_costs_one_more_round_trip() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.log_in(&mut world);
    world.now.unix = UnixSeconds(world.now.unix.0 - 86_400);
    let reply = client.try_allocate(&mut world, |_| ());
    assert_eq!((reply.code(), world.refusals().pop()), (Some(438), Some(Refusal::StaleNonce)));
    client.nonce = Some(reply.nonce());
    client.try_allocate(&mut world, |_| ()).success();
}
