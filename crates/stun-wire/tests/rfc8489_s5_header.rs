//! RFC 8489 §5: the header, and the requirements of a message.

use stun_wire::{
    Class, Message, MessageBuilder, Method, PacketKind, ParseError, TransactionId, classify,
};

use crate::common::{attribute, message, set_length};

fn parse_error(bytes: &[u8]) -> ParseError {
    Message::parse(bytes).expect_err("these bytes break a rule")
}

/// 8489-5-01: type, length, cookie, transaction id, all big-endian.
#[test]
fn header_is_written_as_the_figure_has_it() {
    let mut out = [0xFF; 20];
    let id = TransactionId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let len = MessageBuilder::new(&mut out, Class::Error, Method::ALLOCATE, id).finish();
    assert_eq!(len, Some(20));
    let expected =
        [0x01, 0x13, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    assert_eq!(out, expected);
}

/// 8489-5-02: the two top bits are zero.
#[test]
fn top_bits_must_be_zero() {
    for bits in [0x40, 0x80, 0xC0] {
        let mut bytes = message(0x0001, &[]);
        bytes[0] |= bits;
        assert_eq!(parse_error(&bytes), ParseError::NotStun);
    }
}

/// 8489-5-03: method and class interleaved.
#[test]
fn every_type_is_read_and_written_alike() {
    for message_type in 0..0x4000_u16 {
        let bytes = message(message_type, &[]);
        let parsed = Message::parse(&bytes).unwrap();
        let mut out = [0; 20];
        let builder =
            MessageBuilder::new(&mut out, parsed.class(), parsed.method(), parsed.transaction_id());
        assert_eq!(builder.finish(), Some(20));
        assert_eq!(out[..], bytes, "type 0x{message_type:04X}");
    }
}

/// 8489-5-04: without the cookie it is not a message of this RFC.
#[test]
fn every_bit_of_the_cookie_counts() {
    for bit in 0..32 {
        let mut bytes = message(0x0001, &[]);
        bytes[4 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse_error(&bytes), ParseError::BadCookie);
    }
}

/// 8489-5-05: the length is a multiple of four and that of the body; nothing trails.
#[test]
fn length_must_be_right() {
    let good = message(0x0001, &attribute(0x8022, b"name"));
    for len in (0..good.len() + 40).filter(|&len| len != good.len() - 20) {
        let mut bytes = good.clone();
        set_length(&mut bytes, len);
        let expected = if len % 4 == 0 {
            ParseError::LengthMismatch
        } else {
            ParseError::LengthNotMultipleOfFour
        };
        assert_eq!(parse_error(&bytes), expected, "length {len}");
    }
    let mut trailing = good;
    trailing.extend_from_slice(&[0; 4]);
    assert_eq!(parse_error(&trailing), ParseError::LengthMismatch);
}

#[test]
fn shorter_than_the_header_is_nothing() {
    let bytes = message(0x0001, &[]);
    for len in 0..20 {
        assert_eq!(parse_error(&bytes[..len]), ParseError::TooShort);
    }
}

#[test]
fn longest_message_is_read() {
    let bytes = message(0x0016, &attribute(0x0013, &[7; 65528]));
    assert_eq!(bytes.len(), stun_wire::MESSAGE_LEN_MAX);
    let parsed = Message::parse(&bytes).unwrap();
    assert_eq!(parsed.attributes().next().unwrap().value.len(), 65528);
}

/// 8489-8.1-02, 8656-12-02: the first byte distinguishes the protocols.
#[test]
fn first_byte_tells_the_protocol() {
    assert_eq!(classify(&[]), PacketKind::Other);
    for first in 0..=u8::MAX {
        let expected = match first {
            0..=3 => PacketKind::Stun,
            20..=63 => PacketKind::Dtls,
            64..=79 => PacketKind::ChannelData,
            4..=19 | 80..=255 => PacketKind::Other,
        };
        assert_eq!(classify(&[first, 0, 0, 0]), expected);
    }
}

#[test]
fn methods_have_the_rfc_numbers_and_names() {
    for (method, number, name) in [
        (Method::BINDING, 1, "Binding"),
        (Method::SHARED_SECRET, 2, "SharedSecret"),
        (Method::ALLOCATE, 3, "Allocate"),
        (Method::REFRESH, 4, "Refresh"),
        (Method::SEND, 6, "Send"),
        (Method::DATA, 7, "Data"),
        (Method::CREATE_PERMISSION, 8, "CreatePermission"),
        (Method::CHANNEL_BIND, 9, "ChannelBind"),
        (Method::CONNECT, 10, "Connect"),
        (Method::CONNECTION_BIND, 11, "ConnectionBind"),
        (Method::CONNECTION_ATTEMPT, 12, "ConnectionAttempt"),
    ] {
        assert_eq!((method.number(), method.name()), (number, Some(name)));
        assert_eq!(Method::new(number), Some(method));
    }
    let other = Method::new(0xFFF).unwrap();
    assert_eq!(other.name(), None);
    assert_eq!(format!("{:?} {other:?}", Method::ALLOCATE), "Allocate Method(0xFFF)");
    assert_eq!(Method::new(0x1000), None);
}
