//! RFC 8656 §§17 to 19: methods, attributes and error codes. Values that a method refuses are
//! tested with the method.

use stun_wire::*;
use turn_proto::*;

use crate::support::*;

#[test]
fn a_method_in_the_wrong_class_is_met_with_silence() {
    // 8656-17-01, 8656-17-02, 8489-6.3-02, 8489-6.3-03, 8489-6.3.2-02
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    let methods = [
        Method::BINDING,
        Method::ALLOCATE,
        Method::REFRESH,
        Method::SEND,
        Method::DATA,
        Method::CREATE_PERMISSION,
        Method::CHANNEL_BIND,
        Method::CONNECT,
        Method::new(0x0FF).unwrap(),
    ];
    for method in methods {
        for class in [Class::Request, Class::Indication, Class::Success, Class::Error] {
            let answered = is_answered(method);
            let mut out = [0; 256];
            let id = client.next_transaction();
            let mut builder = MessageBuilder::new(&mut out, class, method, id);
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER)).data(b"x");
            let len = builder.finish().unwrap();
            let fate = world.from_client(&client.path, &out[..len]);
            match class {
                Class::Request if answered => assert!(matches!(fate, Fate::Reply(_)), "{method:?}"),
                Class::Indication if method == Method::SEND => assert_eq!(fate.to_peer(), b"x"),
                Class::Indication if method == Method::BINDING => {
                    assert_eq!(fate.dropped(), DropReason::BindingIndication);
                }
                Class::Request | Class::Indication => {
                    assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:?}");
                }
                Class::Success | Class::Error => {
                    assert_eq!(fate.dropped(), DropReason::UnexpectedResponse, "{method:?}");
                }
            }
        }
    }
    assert_eq!(world.server.allocation_count(), 1, "nothing of it had an effect");
}

fn is_answered(method: Method) -> bool {
    [
        Method::BINDING,
        Method::ALLOCATE,
        Method::REFRESH,
        Method::CREATE_PERMISSION,
        Method::CHANNEL_BIND,
    ]
    .contains(&method)
}

#[test]
fn unknown_required_attributes_are_all_listed() {
    // 8656-18-01, 8489-6.3.1-01, 8489-14.13-01
    let mut world = World::new();
    let mut client = Client::new(1);
    let unknown = [0x0010, 0x0021, 0x7E05, 0x001B, 0x0024].map(AttributeType);
    let write = |builder: &mut MessageBuilder<'_>| {
        builder.requested_transport(17);
        for kind in unknown {
            builder.attribute(kind, b"abc").attribute(AttributeType(0xFE05), b"optional");
        }
        builder.attribute(unknown[0], b"again");
    };
    for method in
        [Method::ALLOCATE, Method::REFRESH, Method::CREATE_PERMISSION, Method::CHANNEL_BIND]
    {
        let reply = client.ask(&mut world, method, write).refused(420);
        assert_eq!(reply.unknown(), unknown, "{method:?}");
    }
    let binding = client.bare(Method::BINDING, write);
    let reply = client.exchange(&mut world, &binding);
    assert_eq!((reply.code(), reply.unknown()), (Some(420), unknown.to_vec()));
}

#[test]
fn very_many_unknown_attributes_still_fit_an_answer() {
    // 8489-6.1-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let reply = client.ask(&mut world, Method::ALLOCATE, |builder| {
        for kind in 0x7000..0x7080 {
            builder.attribute(AttributeType(kind), &[]);
        }
    });
    assert_eq!(reply.refused(420).unknown().len(), limits::UNKNOWN_LISTED_MAX);
}

#[test]
fn attributes_that_are_known_but_not_expected_are_ignored() {
    // 8489-6.3-05, 8489-6.3-04
    let mut world = World::new();
    let mut client = Client::new(1);
    let odd = |builder: &mut MessageBuilder<'_>| {
        builder.channel_number(ChannelNumber::MIN).data(b"x").error_code(400, "");
        builder.address(AttributeType::MAPPED_ADDRESS, addr(PEER));
        builder.unknown_attributes(&[]).attribute(AttributeType(0xFE01), b"x");
    };
    client.try_allocate(&mut world, odd).success();
    client.ask(&mut world, Method::REFRESH, odd).success();
    let binding = client.bare(Method::BINDING, |builder| {
        odd(builder);
        builder.lifetime(7);
    });
    assert_eq!(client.exchange(&mut world, &binding).code(), None);
}

#[test]
fn reserved_parts_of_values_are_ignored() {
    // 8656-18.1-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let reply = client.ask(&mut world, Method::CHANNEL_BIND, |builder| {
        builder.attribute(AttributeType::CHANNEL_NUMBER, &[0x40, 0x00, 0xFF, 0xFF]);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
    });
    reply.success();
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
}

#[test]
fn the_first_of_a_repeated_attribute_counts() {
    // 8489-14-02
    let mut world = World::new();
    let reply = Client::new(1).try_allocate(&mut world, |builder| {
        builder.lifetime(700).lifetime(800);
    });
    assert_eq!(reply.success().lifetime(), 700);
}

#[test]
fn every_refusal_has_the_code_and_the_words_of_the_rfc() {
    // 8656-19-01
    for (code, words) in [
        (300, "Try Alternate"),
        (400, "Bad Request"),
        (401, "Unauthenticated"),
        (403, "Forbidden"),
        (420, "Unknown Attribute"),
        (437, "Allocation Mismatch"),
        (438, "Stale Nonce"),
        (440, "Address Family not Supported"),
        (441, "Wrong Credentials"),
        (442, "Unsupported Transport Protocol"),
        (443, "Peer Address Family Mismatch"),
        (486, "Allocation Quota Reached"),
        (500, "Server Error"),
        (508, "Insufficient Capacity"),
    ] {
        assert_eq!(reason_phrase(code), words);
    }
    for refusal in Refusal::ALL {
        assert!(!reason_phrase(refusal.code()).is_empty(), "{refusal:?}");
    }
}
