//! RFC 8489 §14: attributes in general, and each attribute separately.

use std::net::SocketAddr;

use crate::common;

use stun_wire::{
    ATTRIBUTES_MAX, AttributeType, Class, Message, MessageBuilder, Method, ParseError,
    PasswordAlgorithm, TransactionId, UNKNOWN_REQUIRED_MAX, ValueError, reason_phrase, value,
};

use crate::common::{attribute, attribute_padded, message};

const ID: TransactionId = TransactionId(common::ID);

/// Returns the attributes that `write` appends, as bytes.
fn built(write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = vec![0xFF; 1500];
    let mut builder = MessageBuilder::new(&mut out, Class::Error, Method::BINDING, ID);
    write(&mut builder);
    let len = builder.finish().expect("it fits");
    out[20..len].to_vec()
}

/// 8489-14-01: the length is that of the value; padding is sent as zeros.
#[test]
fn padding_is_sent_as_zeros() {
    for len in 0..=9 {
        let value = vec![0x55; len];
        let bytes = built(|builder| {
            builder.attribute(AttributeType::SOFTWARE, &value);
        });
        assert_eq!(bytes, attribute(0x8022, &value));
    }
}

/// 8489-14-01: padding is ignored when received.
#[test]
fn padding_is_ignored() {
    let body = [attribute_padded(0x8022, b"12345", 0xFF), attribute(0x0006, b"user")].concat();
    let bytes = message(0x0001, &body);
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.first(AttributeType::SOFTWARE), Some(&b"12345"[..]));
    assert_eq!(message.first(AttributeType::USERNAME), Some(&b"user"[..]));
}

/// 8489-14-02: the first attribute of a type is used. Methods that need all repetitions get them,
/// in order.
#[test]
fn first_of_a_type_counts() {
    let body = [attribute(0x000D, &[0, 0, 0, 1]), attribute(0x000D, &[0, 0, 0, 2])].concat();
    let bytes = message(0x0004, &body);
    let message = Message::parse(&bytes).unwrap();
    let first = message.first(AttributeType::LIFETIME).unwrap();
    assert_eq!(value::lifetime(first), Ok(1));
    let all: Vec<_> = message.attributes().map(|found| value::lifetime(found.value)).collect();
    assert_eq!(all, [Ok(1), Ok(2)]);
    let all: Vec<_> = message.all(AttributeType::LIFETIME).map(value::lifetime).collect();
    assert_eq!(all, [Ok(1), Ok(2)]);
    assert_eq!(message.all(AttributeType::USERNAME).count(), 0);
}

/// 8489-14-03: an attribute that exceeds the message makes the message malformed.
#[test]
fn attribute_past_the_end_is_refused() {
    for len in [1, 4, 5, 0xFFF8, 0xFFFC, 0xFFFF_u16] {
        let [l0, l1] = len.to_be_bytes();
        let bytes = message(0x0001, &[0x80, 0x22, l0, l1]);
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::AttributeOverrun);
    }
    // After valid attributes, and after ignored attributes: the structure is checked up to the last
    // byte.
    for before in [attribute(0x8022, b"name"), attribute(0x0008, &[0; 20])] {
        let bytes = message(0x0001, &[&before[..], &[0x00, 0x06, 0x00, 0x05, 1, 2, 3, 4]].concat());
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::AttributeOverrun);
    }
}

/// 8489-6.3.1-01: all unknown required types, each once, in order; nothing else.
#[test]
fn unknown_required_attributes_are_named_once() {
    let kinds = [0x7E05, 0x0006, 0xFE01, 0x7E01, 0x7E05, 0x0010, 0x0021, 0x7E01];
    let body: Vec<_> = kinds.iter().flat_map(|&kind| attribute(kind, b"xyz")).collect();
    let bytes = message(0x0001, &body);
    let message = Message::parse(&bytes).unwrap();
    let known = |kind: AttributeType| kind.name().is_some();
    let unknown: Vec<_> = message.unknown_required(known).map(|kind| kind.0).collect();
    // 8656-18-01: 0x0010 and 0x0021 are reserved and so unknown.
    assert_eq!(unknown, [0x7E05, 0x7E01, 0x0010, 0x0021]);
}

#[test]
fn unknown_required_attributes_are_bounded() {
    let body: Vec<_> =
        (0x4000..0x4000 + ATTRIBUTES_MAX as u16).flat_map(|kind| attribute(kind, &[])).collect();
    let bytes = message(0x0001, &body);
    let message = Message::parse(&bytes).unwrap();
    let unknown: Vec<_> = message.unknown_required(|_| false).map(|kind| kind.0).collect();
    let expected: Vec<_> = (0x4000..0x4000 + UNKNOWN_REQUIRED_MAX as u16).collect();
    assert_eq!(unknown, expected);
}

/// Each attribute takes time before the sender is known.
#[test]
fn a_message_has_a_bounded_number_of_attributes() {
    let with = |count| message(0x0001, &attribute(0x7E01, b"xyz").repeat(count));
    assert!(Message::parse(&with(ATTRIBUTES_MAX)).is_ok());
    let refused = Message::parse(&with(ATTRIBUTES_MAX + 1)).unwrap_err();
    assert_eq!(refused, ParseError::TooManyAttributes);
    let classic = |count| [&with(count)[..4], &[7], &with(count)[5..]].concat();
    assert!(Message::parse_classic(&classic(ATTRIBUTES_MAX)).is_ok());
    let refused = Message::parse_classic(&classic(ATTRIBUTES_MAX + 1)).unwrap_err();
    assert_eq!(refused, ParseError::TooManyAttributes);
}

#[test]
fn comprehension_is_required_below_0x8000() {
    assert!(AttributeType(0x7FFF).is_comprehension_required());
    assert!(!AttributeType(0x8000).is_comprehension_required());
}

/// 8489-14.1-01
#[test]
fn mapped_address() {
    for (addr, bytes) in [
        ("192.0.2.1:32853", &[0, 1, 0x80, 0x55, 192, 0, 2, 1][..]),
        ("[2001:db8::5]:1", &[0, 2, 0, 1, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]),
    ] {
        let addr: SocketAddr = addr.parse().unwrap();
        let written = built(|builder| {
            builder.address(AttributeType::MAPPED_ADDRESS, addr);
        });
        assert_eq!(written, attribute(0x0001, bytes));
        assert_eq!(value::address(bytes), Ok(addr));
        let mut first_byte = bytes.to_vec();
        first_byte[0] = 0xFF;
        assert_eq!(value::address(&first_byte), Ok(addr), "the first byte is ignored");
    }
}

/// 8489-14.1-01, 8656-10.2-02: length and family must agree.
#[test]
fn malformed_addresses() {
    for (bytes, expected) in [
        (vec![], ValueError::Length),
        (vec![0, 1, 0], ValueError::Length),
        (vec![0, 1, 0, 80], ValueError::Length),
        (vec![0, 1, 0, 80, 192], ValueError::Length),
        (vec![0, 1, 0, 80, 192, 0, 2, 1, 0], ValueError::Length),
        (vec![0, 2, 0, 80, 192, 0, 2, 1], ValueError::Length),
        ([&[0, 1, 0, 80][..], &[0; 16]].concat(), ValueError::Length),
        (vec![0, 9, 0, 80, 192, 0, 2, 1], ValueError::AddressFamily),
        (vec![0, 0, 0, 80, 192, 0, 2, 1], ValueError::AddressFamily),
    ] {
        assert_eq!(value::address(&bytes), Err(expected), "{bytes:?}");
        assert_eq!(value::xor_address(&bytes, ID), Err(expected), "{bytes:?}");
    }
}

/// 8489-14.2-01: byte for byte, in addition to the vectors of RFC 5769.
#[test]
fn xor_mapped_address() {
    let zero: SocketAddr = "[::]:0".parse().unwrap();
    let written = built(|builder| {
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, zero);
    });
    let mask = [&[0, 2, 0x21, 0x12, 0x21, 0x12, 0xA4, 0x42][..], &common::ID].concat();
    assert_eq!(written, attribute(0x0020, &mask));
    assert_eq!(value::xor_address(&mask, ID), Ok(zero));
    let other = value::xor_address(&mask, TransactionId([0; 12])).unwrap();
    assert_ne!(other, zero, "the transaction id is part of the mask");
}

/// 8489-14.3-01: up to 763 bytes, UTF-8; the other texts have the same limit.
#[test]
fn texts() {
    type Reader = fn(&[u8]) -> Result<&str, ValueError>;
    let readers: [(&str, Reader); 5] = [
        ("username", value::username),
        ("realm", value::realm),
        ("nonce", value::nonce),
        ("software", value::software),
        ("third_party_authorization", value::third_party_authorization),
    ];
    for (name, read) in readers {
        let longest = "x".repeat(763);
        assert_eq!(read(longest.as_bytes()), Ok(&longest[..]), "{name}");
        assert_eq!(read("x".repeat(764).as_bytes()), Err(ValueError::Length), "{name}");
        assert_eq!(read(b""), Ok(""), "{name}");
        assert_eq!(read("マトリックス".as_bytes()), Ok("マトリックス"), "{name}");
        assert_eq!(read(b"\xC3"), Err(ValueError::Utf8), "{name}");
        assert_eq!(read(b"\xED\xA0\x80"), Err(ValueError::Utf8), "{name}: a surrogate");
    }
}

/// 8489-14.4-01
#[test]
fn userhash_is_32_bytes() {
    for len in 0..40 {
        assert_eq!(value::userhash(&vec![7; len]).is_ok(), len == 32);
    }
}

/// 8489-14.8-03: class and number, reserved bits ignored when received and zero when sent.
#[test]
fn error_code() {
    let written = built(|builder| {
        builder.error_code(438, reason_phrase(438));
    });
    assert_eq!(written, attribute(0x0009, b"\x00\x00\x04\x26Stale Nonce"));
    assert_eq!(value::error_code(b"\x00\x00\x04\x26Stale Nonce"), Ok((438, "Stale Nonce")));
    assert_eq!(value::error_code(b"\xFF\xFF\xFC\x26"), Ok((438, "")));
    assert_eq!(value::error_code(b"\0\0\x03\0"), Ok((300, "")));
    assert_eq!(value::error_code(b"\0\0\x06\x63"), Ok((699, "")));
    for bad in [&b"\0\0\x02\0"[..], b"\0\0\x07\0", b"\0\0\x00\0", b"\0\0\x04\x64"] {
        assert_eq!(value::error_code(bad), Err(ValueError::ErrorCode));
    }
    assert_eq!(value::error_code(b"\0\0\x04"), Err(ValueError::Length));
    assert_eq!(value::error_code(b"\0\0\x04\0\xFF"), Err(ValueError::Utf8));
}

#[test]
fn error_codes_out_of_range_are_not_written() {
    for (code, valid) in
        [(0, false), (299, false), (300, true), (699, true), (700, false), (u16::MAX, false)]
    {
        let mut out = [0; 100];
        let mut builder = MessageBuilder::new(&mut out, Class::Error, Method::BINDING, ID);
        builder.error_code(code, "");
        assert_eq!(builder.finish().is_some(), valid, "{code}");
    }
}

/// 8489-18.5-01, 8656-19-01, 8489-6.3.1.1-02, 6062-6-01: the registry's phrases.
#[test]
fn reason_phrases() {
    for (code, phrase) in [
        (300, "Try Alternate"),
        (400, "Bad Request"),
        (401, "Unauthenticated"),
        (403, "Forbidden"),
        (405, "Mobility Forbidden"),
        (420, "Unknown Attribute"),
        (437, "Allocation Mismatch"),
        (438, "Stale Nonce"),
        (440, "Address Family not Supported"),
        (441, "Wrong Credentials"),
        (442, "Unsupported Transport Protocol"),
        (443, "Peer Address Family Mismatch"),
        (446, "Connection Already Exists"),
        (447, "Connection Timeout or Failure"),
        (486, "Allocation Quota Reached"),
        (487, "Role Conflict"),
        (500, "Server Error"),
        (508, "Insufficient Capacity"),
        (499, ""),
    ] {
        assert_eq!(reason_phrase(code), phrase);
    }
}

/// 8489-14.11-01
#[test]
fn password_algorithms() {
    let written = built(|builder| {
        builder.password_algorithms(&[PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5]);
    });
    assert_eq!(written, attribute(0x8002, &[0, 2, 0, 0, 0, 1, 0, 0]));

    // An unknown algorithm with five bytes of parameters, and arbitrary padding.
    let foreign = [0, 9, 0, 5, 1, 2, 3, 4, 5, 0xFF, 0xFF, 0xFF, 0, 1, 0, 0];
    let read: Vec<_> = value::password_algorithms(&foreign).collect();
    assert_eq!(read, [Ok(PasswordAlgorithm(9)), Ok(PasswordAlgorithm::MD5)]);

    // Parsing stops at the first malformed entry.
    let cut = [0, 2, 0, 0, 0, 9, 0, 8, 1, 2, 3, 4];
    let read: Vec<_> = value::password_algorithms(&cut).collect();
    assert_eq!(read, [Ok(PasswordAlgorithm::SHA256), Err(ValueError::Length)]);
    assert_eq!(value::password_algorithms(&[]).count(), 0);
    let odd: Vec<_> = value::password_algorithms(&[0, 2, 0]).collect();
    assert_eq!(odd, [Err(ValueError::Length)]);
}

#[test]
fn password_algorithms_have_the_rfc_names() {
    let name = |number| PasswordAlgorithm(number).name();
    assert_eq!([1, 2, 3].map(name), [Some("MD5"), Some("SHA-256"), None]);
}

/// 8489-14.12-01: exactly one entry.
#[test]
fn password_algorithm() {
    let written = built(|builder| {
        builder.password_algorithm(PasswordAlgorithm::SHA256);
    });
    assert_eq!(written, attribute(0x001D, &[0, 2, 0, 0]));
    for (bytes, expected) in [
        (&[0, 2, 0, 0][..], Ok(PasswordAlgorithm::SHA256)),
        (&[0, 9, 0, 0], Ok(PasswordAlgorithm(9))),
        (&[0, 9, 0, 1, 7, 0, 0, 0], Ok(PasswordAlgorithm(9))),
        (&[0, 9, 0, 1, 7], Ok(PasswordAlgorithm(9))),
        (&[], Err(ValueError::Length)),
        (&[0, 2, 0], Err(ValueError::Length)),
        (&[0, 2, 0, 0, 0], Err(ValueError::Length)),
        (&[0, 2, 0, 0, 0, 1, 0, 0], Err(ValueError::Length)),
        (&[0, 9, 0, 2, 7], Err(ValueError::Length)),
        (&[0, 2, 0, 1, 7, 0, 0, 0], Err(ValueError::AlgorithmParameters)),
    ] {
        assert_eq!(value::password_algorithm(bytes), expected, "{bytes:?}");
    }
}

/// 8489-14.13-01: ordinary padding, no duplicate to fill up.
#[test]
fn unknown_attributes() {
    let kinds = [AttributeType(0x7E01), AttributeType(0x7E02), AttributeType(0x7E03)];
    let written = built(|builder| {
        builder.unknown_attributes(&kinds);
    });
    assert_eq!(written, [0, 0x0A, 0, 6, 0x7E, 1, 0x7E, 2, 0x7E, 3, 0, 0]);
    assert!(value::unknown_attributes(&written[4..10]).eq(kinds));
    assert!(value::unknown_attributes(&written[4..9]).eq([kinds[0], kinds[1]]));
}

/// 8489-14.15-01: ALTERNATE-SERVER is not obfuscated. 8489-14.16-01: ALTERNATE-DOMAIN is ASCII, at
/// most 255 bytes.
#[test]
fn alternate_server_and_domain() {
    let addr = "192.0.2.7:3478".parse().unwrap();
    let written = built(|builder| {
        builder.address(AttributeType::ALTERNATE_SERVER, addr).alternate_domain("turn.example");
    });
    let expected =
        [attribute(0x8023, &[0, 1, 0x0D, 0x96, 192, 0, 2, 7]), attribute(0x8003, b"turn.example")];
    assert_eq!(written, expected.concat());
    assert_eq!(value::alternate_domain(b"turn.example"), Ok("turn.example"));
    assert!(value::alternate_domain(&[b'a'; 255]).is_ok());
    assert_eq!(value::alternate_domain(&[b'a'; 256]), Err(ValueError::Length));
    assert_eq!(value::alternate_domain("türn".as_bytes()), Err(ValueError::DomainName));
}

#[test]
fn what_does_not_fit_has_no_end() {
    let write = |out: &mut [u8]| {
        let mut builder = MessageBuilder::new(out, Class::Error, Method::BINDING, ID);
        builder.error_code(400, "Bad Request").software("name");
        builder.fingerprint()
    };
    let mut out = [0; 100];
    let whole = write(&mut out).unwrap();
    for len in 0..whole {
        assert_eq!(write(&mut out[..len]), None, "{len} of {whole} bytes");
    }
    assert_eq!(write(&mut out[..whole]), Some(whole));
}

#[test]
fn nothing_longer_than_a_length_field() {
    let mut out = vec![0; 140_000];
    let mut build = |values: &[usize]| {
        let mut builder = MessageBuilder::new(&mut out, Class::Indication, Method::DATA, ID);
        for &len in values {
            builder.data(&vec![1; len]);
        }
        builder.finish()
    };
    assert_eq!(build(&[65528]), Some(65552));
    assert_eq!(build(&[65529]), None);
    assert_eq!(build(&[65536]), None);
    assert_eq!(build(&[65524, 0]), Some(65552));
    assert_eq!(build(&[65528, 0]), None);
}
