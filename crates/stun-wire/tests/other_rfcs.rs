//! The attributes of RFC 5780, 6062, 7635 and 8016, and messages of RFC 3489.

use stun_wire::{
    AccessToken, AccessTokenBlock, AttributeType, ChangeRequest, Class, Message, MessageBuilder,
    Method, ParseError, TransactionId, ValueError, value,
};

use crate::common;
use crate::common::attribute;

fn built(write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = vec![0xFF; 1500];
    let id = TransactionId(common::ID);
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::BINDING, id);
    write(&mut builder);
    let len = builder.finish().expect("it fits");
    out[20..len].to_vec()
}

/// 5780-7.2-01
#[test]
fn change_request() {
    for (change_ip, change_port, flags) in
        [(false, false, 0), (true, false, 4), (false, true, 2), (true, true, 6)]
    {
        let change = ChangeRequest { change_ip, change_port };
        let written = built(|builder| {
            builder.change_request(change);
        });
        assert_eq!(written, attribute(0x0003, &[0, 0, 0, flags]));
        assert_eq!(value::change_request(&[0, 0, 0, flags]), Ok(change));
        assert_eq!(value::change_request(&[0xFF, 0xFF, 0xFF, flags | 0xF9]), Ok(change));
    }
    for len in [0, 3, 5, 8] {
        assert_eq!(value::change_request(&vec![0; len]), Err(ValueError::Length));
    }
}

/// 5780-7.5-01
#[test]
fn response_port() {
    let written = built(|builder| {
        builder.response_port(0x1234);
    });
    assert_eq!(written, attribute(0x0027, &[0x12, 0x34, 0, 0]));
    assert_eq!(value::response_port(&[0x12, 0x34]), Ok(0x1234));
    assert_eq!(value::response_port(&[0x12, 0x34, 0xFF, 0xFF]), Ok(0x1234));
    for len in [0, 1, 3, 5] {
        assert_eq!(value::response_port(&vec![0; len]), Err(ValueError::Length));
    }
}

/// 5780-7.6-01: the message is complete after the announced number of zeros.
#[test]
fn padding_is_announced_before_it_is_sent() {
    for padding in [0, 4, 1480, 65_000] {
        let mut out = vec![0xFF; 100];
        let id = TransactionId(common::ID);
        let mut builder = MessageBuilder::new(&mut out, Class::Success, Method::BINDING, id);
        builder.response_port(0x1234);
        let len = builder.finish_before_padding(padding).unwrap();
        assert_eq!(len, 20 + 8 + 4, "the header, an attribute, and the header of PADDING");
        out.resize(len, 0);
        out.resize(len + usize::from(padding), 0);
        let message = Message::parse(&out).unwrap();
        let announced = message.first(AttributeType::PADDING).unwrap();
        assert_eq!(announced, vec![0; padding.into()]);
        assert!(message.first(AttributeType::RESPONSE_PORT).is_some());
    }
    let mut out = [0; 31];
    let id = TransactionId(common::ID);
    let mut builder = MessageBuilder::new(&mut out, Class::Success, Method::BINDING, id);
    builder.response_port(0x1234);
    assert_eq!(builder.finish_before_padding(4), None, "there is no room for its header");
}

/// 5780-7-01: encoded like MAPPED-ADDRESS.
#[test]
fn response_origin_and_other_address() {
    let addr = "192.0.2.1:3479".parse().unwrap();
    let written = built(|builder| {
        builder.address(AttributeType::RESPONSE_ORIGIN, addr);
        builder.address(AttributeType::OTHER_ADDRESS, addr);
    });
    let value = [0, 1, 0x0D, 0x97, 192, 0, 2, 1];
    assert_eq!(written, [attribute(0x802B, &value), attribute(0x802C, &value)].concat());
}

#[test]
fn cache_timeout() {
    assert_eq!(value::cache_timeout(&[0, 0, 1, 0]), Ok(256));
    assert_eq!(value::cache_timeout(&[0, 0, 1]), Err(ValueError::Length));
}

/// 6062-6-01
#[test]
fn connection_id() {
    let written = built(|builder| {
        builder.connection_id(0xDEAD_BEEF);
    });
    assert_eq!(written, attribute(0x002A, &[0xDE, 0xAD, 0xBE, 0xEF]));
    assert_eq!(value::connection_id(&[0xDE, 0xAD, 0xBE, 0xEF]), Ok(0xDEAD_BEEF));
    for len in [0, 3, 5] {
        assert_eq!(value::connection_id(&vec![0; len]), Err(ValueError::Length));
    }
}

/// 8016-3.1.2-01: an empty ticket requests a ticket.
#[test]
fn mobility_ticket() {
    let written = built(|builder| {
        builder.mobility_ticket(&[]).mobility_ticket(b"opaque");
    });
    assert_eq!(written, [attribute(0x8030, &[]), attribute(0x8030, b"opaque")].concat());
}

/// 7635-6.1-01
#[test]
fn third_party_authorization() {
    let written = built(|builder| {
        builder.third_party_authorization("turn1@example.com");
    });
    assert_eq!(written, attribute(0x802E, b"turn1@example.com"));
}

/// 7635-6.2-01: length of the nonce, nonce, encrypted block.
#[test]
fn access_token() {
    let token = AccessToken { nonce: b"abcdefghijkl", encrypted: b"ciphertext and tag" };
    let written = built(|builder| {
        builder.access_token(token);
    });
    assert_eq!(written, attribute(0x001B, b"\x00\x0Cabcdefghijklciphertext and tag"));
    assert_eq!(value::access_token(&written[4..36]), Ok(token));
    for len in 0..14 {
        assert_eq!(value::access_token(&written[4..4 + len]), Err(ValueError::Length));
    }
    let empty = AccessToken { nonce: &[], encrypted: &[] };
    assert_eq!(value::access_token(&[0, 0]), Ok(empty));
}

/// 7635-6.2-01: length of the key, key, 64-bit timestamp, 32-bit lifetime, and nothing else.
#[test]
fn access_token_block() {
    let block = AccessTokenBlock {
        mac_key: &[0x11; 20],
        timestamp: 0x0000_5A5A_5A5A_8000,
        lifetime_secs: 3600,
    };
    let expected =
        [&[0, 20][..], &[0x11; 20], &[0, 0, 0x5A, 0x5A, 0x5A, 0x5A, 0x80, 0], &[0, 0, 0x0E, 0x10]]
            .concat();
    let mut out = [0; 40];
    assert_eq!(block.write(&mut out), Some(34));
    assert_eq!(out[..34], expected);
    assert!(value::access_token_block(&expected) == Ok(block));
    for len in 0..34 {
        assert!(value::access_token_block(&expected[..len]).is_err());
        assert_eq!(block.write(&mut out[..len]), None);
    }
    assert!(value::access_token_block(&out[..35]).is_err());
    assert!(!format!("{block:?}").contains("17"), "the key is not shown");
}

/// classic-01: all 16 bytes after the length are the id, and a response repeats them.
#[test]
fn classic_binding() {
    let id = *b"a classic id, 16";
    let mut request = vec![0x00, 0x01, 0x00, 0x08];
    request.extend_from_slice(&id);
    request.extend_from_slice(&attribute(0x0003, &[0, 0, 0, 6]));
    assert_eq!(Message::parse(&request).unwrap_err(), ParseError::BadCookie);

    let classic = Message::parse_classic(&request).unwrap();
    assert_eq!((classic.class(), classic.method()), (Class::Request, Method::BINDING));
    assert_eq!(classic.transaction_id(), id);
    assert_eq!(classic.first(AttributeType::CHANGE_REQUEST), Some(&[0, 0, 0, 6][..]));
    assert_eq!(classic.attributes().count(), 1);

    let mut out = [0; 100];
    let mut builder = MessageBuilder::new_classic(&mut out, Class::Success, Method::BINDING, id);
    builder.address(AttributeType::MAPPED_ADDRESS, "192.0.2.1:32853".parse().unwrap());
    let len = builder.finish().unwrap();
    let mut expected = vec![0x01, 0x01, 0x00, 0x0C];
    expected.extend_from_slice(&id);
    expected.extend_from_slice(&attribute(0x0001, &[0, 1, 0x80, 0x55, 192, 0, 2, 1]));
    assert_eq!(out[..len], expected);
}

#[test]
fn classic_messages_are_checked_alike() {
    let good = [&[0, 1, 0, 4][..], &[7; 16], &attribute(0x8022, &[])].concat();
    assert!(Message::parse_classic(&good).is_ok());
    for (at, byte, expected) in [
        (0, 0x80, ParseError::NotStun),
        (3, 3, ParseError::LengthNotMultipleOfFour),
        (3, 8, ParseError::LengthMismatch),
        (23, 1, ParseError::AttributeOverrun),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(Message::parse_classic(&bytes).unwrap_err(), expected);
    }
    assert_eq!(Message::parse_classic(&good[..19]).unwrap_err(), ParseError::TooShort);
}

/// RFC 3489 §11.2.8: attributes after MESSAGE-INTEGRITY are ignored.
#[test]
fn classic_attributes_end_at_the_integrity() {
    let body =
        [attribute(0x0006, b"name"), attribute(0x0008, &[0; 20]), attribute(0x0002, &[0; 8])];
    let body = body.concat();
    let mut bytes = vec![0, 1, 0, u8::try_from(body.len()).unwrap()];
    bytes.extend_from_slice(&[7; 16]);
    bytes.extend_from_slice(&body);
    let classic = Message::parse_classic(&bytes).unwrap();
    assert_eq!(classic.attributes().count(), 1);
    assert_eq!(classic.first(AttributeType::RESPONSE_ADDRESS), None);
}
