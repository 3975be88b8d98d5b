//! Comparison with another implementation, `stun-types`. Both agree about messages, except for the
//! differences documented here.

use std::net::SocketAddr;

use crate::common;

use proptest::collection::vec;
use proptest::prelude::*;
use stun_types::attribute as theirs;
use stun_types::attribute::Attribute as _;
use stun_types::message as their_message;
use stun_types::prelude::{MessageWrite as _, MessageWriteExt as _};
use stun_wire::{
    ATTRIBUTES_MAX, AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder,
    Method, ParseError, PasswordAlgorithm, TransactionId, reason_phrase,
};

use crate::common::vectors::WELL_FORMED;
use crate::common::{
    append, append_fingerprint, append_sha1, append_sha256, attribute, message, set_length,
};

const PASSWORD: &str = "a short-term password";

const SPECIAL: [AttributeType; 3] = [
    AttributeType::MESSAGE_INTEGRITY,
    AttributeType::MESSAGE_INTEGRITY_SHA256,
    AttributeType::FINGERPRINT,
];

/// Parses the bytes with both implementations. Panics if they differ without an excuse. Returns
/// true if both accept the bytes.
fn compare(bytes: &[u8]) -> bool {
    let ours = Message::parse(bytes);
    let other = their_message::Message::from_bytes(bytes);
    let (message, other) = match (ours, other) {
        (Err(_), Err(_)) => return false,
        (Err(error), Ok(_)) => {
            assert!(excused(bytes, error), "only we refuse ({error}): {bytes:02x?}");
            return false;
        }
        (Ok(_), Err(error)) => panic!("only they refuse ({error}): {bytes:02x?}"),
        (Ok(message), Ok(other)) => (message, other),
    };

    assert_eq!(message.method().number(), other.method().value());
    assert_eq!(message.class(), class(other.class()));
    let id: u128 = other.transaction_id().into();
    assert_eq!(message.transaction_id().0, id.to_be_bytes()[4..]);
    let counting: Vec<_> = other
        .iter_attributes()
        .map(|(_, found)| (AttributeType(found.get_type().value()), found.value.to_vec()))
        .take_while(|(kind, _)| !SPECIAL.contains(kind))
        .collect();
    let ours: Vec<_> =
        message.attributes().map(|found| (found.kind, found.value.to_vec())).collect();
    assert_eq!(ours, counting, "{bytes:02x?}");
    compare_integrity(&message, &other);
    true
}

/// Returns true for messages that only this crate refuses, for a documented reason.
fn excused(bytes: &[u8], error: ParseError) -> bool {
    match error {
        // The other crate leaves it to the caller that a datagram is one message: RFC 8489 §5 has
        // the length field include all following bytes.
        ParseError::LengthMismatch => {
            bytes.len() > 20 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]))
        }
        // RFC 8489 §5: the last two bits of the field are always zero.
        ParseError::LengthNotMultipleOfFour => true,
        // The other crate has no limit.
        ParseError::TooManyAttributes => bytes.len() > 20 + 4 * ATTRIBUTES_MAX,
        // After the integrity attributes, the other crate checks only further integrity attributes
        // and FINGERPRINT. This crate checks the structure up to the last byte, because otherwise
        // the message is not well-formed.
        ParseError::AttributeOverrun | ParseError::Fingerprint => {
            let mut rest = &bytes[20..];
            while let [k0, k1, l0, l1, behind @ ..] = rest {
                if SPECIAL.contains(&AttributeType(u16::from_be_bytes([*k0, *k1]))) {
                    return !behind.is_empty();
                }
                let len = usize::from(u16::from_be_bytes([*l0, *l1])).next_multiple_of(4);
                rest = behind.get(len..).unwrap_or_default();
            }
            false
        }
        ParseError::TooShort
        | ParseError::NotStun
        | ParseError::BadCookie
        | ParseError::NotChannelData => false,
    }
}

fn compare_integrity(message: &Message<'_>, other: &their_message::Message<'_>) {
    // The other crate stops at the first ignored attribute after MESSAGE-INTEGRITY, and so misses a
    // later MESSAGE-INTEGRITY-SHA256. RFC 8489 §9 exempts that attribute anywhere.
    let mut kinds = Vec::new();
    let mut rest = &message.bytes()[20..];
    while let [k0, k1, l0, l1, behind @ ..] = rest {
        kinds.push(AttributeType(u16::from_be_bytes([*k0, *k1])));
        rest = &behind[usize::from(u16::from_be_bytes([*l0, *l1])).next_multiple_of(4)..];
    }
    let place = |wanted| kinds.iter().position(|kind| *kind == wanted);
    let sha1 = place(AttributeType::MESSAGE_INTEGRITY);
    let sha256 = place(AttributeType::MESSAGE_INTEGRITY_SHA256);
    if let (Some(sha1), Some(sha256)) = (sha1, sha256)
        && sha256 > sha1 + 1
    {
        return;
    }
    let key = IntegrityKey::new(PASSWORD.as_bytes());
    let their_key = their_message::ShortTermCredentials::new(PASSWORD.to_owned()).make_key();
    let verified = other.validate_integrity_with_key(&their_key).is_ok();
    // The other crate accepts a truncated MESSAGE-INTEGRITY-SHA256 for every usage.
    let is_truncated = message.integrity().sha256.is_some_and(|mac| mac.len() < 32);
    let expected = verified && !is_truncated;
    assert_eq!(message.verify(&key), expected, "{:02x?}", message.bytes());
}

fn class(class: their_message::MessageClass) -> Class {
    match class {
        their_message::MessageClass::Request => Class::Request,
        their_message::MessageClass::Indication => Class::Indication,
        their_message::MessageClass::Success => Class::Success,
        their_message::MessageClass::Error => Class::Error,
    }
}

#[test]
fn vectors() {
    for vector in WELL_FORMED {
        assert!(compare(vector));
        for len in 0..vector.len() {
            compare(&vector[..len]);
        }
    }
}

#[test]
fn every_bit_of_the_vectors() {
    for vector in WELL_FORMED {
        for bit in 0..vector.len() * 8 {
            let mut bytes = vector.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            compare(&bytes);
        }
    }
}

/// The documented differences are real: an excuse without a difference must be removed.
#[test]
fn differences() {
    let only_we_refuse = |bytes: &[u8]| {
        assert!(their_message::Message::from_bytes(bytes).is_ok());
        Message::parse(bytes).expect_err("the difference")
    };
    let mut trailing = message(0x0001, &attribute(0x8022, b"name"));
    trailing.extend_from_slice(&attribute(0x8022, b"more"));
    assert_eq!(only_we_refuse(&trailing), ParseError::LengthMismatch);

    let mut odd = message(0x0001, &attribute(0x8022, b"name"));
    set_length(&mut odd, 6);
    assert_eq!(only_we_refuse(&odd), ParseError::LengthNotMultipleOfFour);

    let mut not_last = message(0x0001, &[]);
    append_fingerprint(&mut not_last);
    append(&mut not_last, 0x8022, b"name");
    assert_eq!(only_we_refuse(&not_last), ParseError::Fingerprint);

    let body = [attribute(0x0008, &[0; 20]), attribute(0x8022, b"name"), vec![0x80, 0x22, 0, 9]];
    let overrun = message(0x0001, &body.concat());
    assert_eq!(only_we_refuse(&overrun), ParseError::AttributeOverrun);
}

/// Parts of a message: (type, value), and the final attributes.
#[derive(Clone, Debug)]
struct Made {
    message_type: u16,
    attributes: Vec<(u16, Vec<u8>)>,
    integrity: Vec<IntegrityKind>,
    behind: Vec<(u16, Vec<u8>)>,
    fingerprint: bool,
}

fn attributes(count: usize) -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let kind = prop_oneof![
        8 => prop::sample::select(AttributeType::NAMED).prop_map(|kind| kind.0),
        1 => any::<u16>(),
    ];
    vec((kind, vec(any::<u8>(), 0..36)), 0..=count)
}

fn made() -> impl Strategy<Value = Made> {
    let kinds = prop::sample::select(vec![IntegrityKind::Sha1, IntegrityKind::Sha256]);
    (0..0x4000_u16, attributes(6), vec(kinds, 0..3), attributes(1), any::<bool>()).prop_map(
        |(message_type, attributes, integrity, behind, fingerprint)| Made {
            message_type,
            attributes,
            integrity,
            behind,
            fingerprint,
        },
    )
}

fn write(made: &Made) -> Vec<u8> {
    let mut bytes = message(made.message_type, &[]);
    for (kind, value) in &made.attributes {
        append(&mut bytes, *kind, value);
    }
    for kind in &made.integrity {
        match kind {
            IntegrityKind::Sha1 => append_sha1(&mut bytes, PASSWORD.as_bytes()),
            IntegrityKind::Sha256 => append_sha256(&mut bytes, PASSWORD.as_bytes()),
        }
    }
    for (kind, value) in &made.behind {
        append(&mut bytes, *kind, value);
    }
    if made.fingerprint {
        append_fingerprint(&mut bytes);
    }
    bytes
}

proptest! {
    #![proptest_config(common::seeded(2000))]

    #[test]
    fn made_messages(made in made()) {
        compare(&write(&made));
    }

    #[test]
    fn changed_messages(made in made(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = write(&made);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        compare(&bytes);
    }

    #[test]
    fn cut_messages(made in made(), len in any::<prop::sample::Index>(), fit in any::<bool>()) {
        let mut bytes = write(&made);
        bytes.truncate(len.index(bytes.len()));
        if fit && bytes.len() >= 20 {
            let len = bytes.len() - 20;
            set_length(&mut bytes, len);
        }
        compare(&bytes);
    }

    /// Both accept messages without special attributes, so the comparison is not empty.
    #[test]
    fn plain_messages(message_type in 0..0x4000_u16, mut plain in attributes(8)) {
        plain.retain(|(kind, _)| !SPECIAL.contains(&AttributeType(*kind)));
        let body: Vec<_> = plain.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
        prop_assert!(compare(&message(message_type, &body)));
    }

    /// Both write the same bytes.
    #[test]
    fn written_alike(
        id in any::<[u8; 12]>(),
        text in "[ -~]{1,40}",
        addr in any::<(std::net::IpAddr, u16)>().prop_map(SocketAddr::from),
        code in prop::sample::select(vec![300_u16, 400, 401, 420, 438, 500]),
        unknown in vec(any::<u16>(), 0..5),
        sha256 in any::<bool>(),
    ) {
        let answer = Answer { id, text, addr, code, unknown, sha256 };
        prop_assert_eq!(our_bytes(&answer), their_bytes(&answer));
    }
}

/// Response with one of each attribute that the other crate can write.
struct Answer {
    id: [u8; 12],
    text: String,
    addr: SocketAddr,
    code: u16,
    unknown: Vec<u16>,
    sha256: bool,
}

fn our_bytes(answer: &Answer) -> Vec<u8> {
    let Answer { text, addr, code, .. } = answer;
    let mut out = vec![0xFF; 1000];
    let id = TransactionId(answer.id);
    let mut builder = MessageBuilder::new(&mut out, Class::Error, Method::BINDING, id);
    let unknown: Vec<_> = answer.unknown.iter().map(|kind| AttributeType(*kind)).collect();
    builder
        .error_code(*code, reason_phrase(*code))
        .unknown_attributes(&unknown)
        .username(text)
        .realm(text)
        .nonce(text)
        .software(text)
        .userhash(&[7; 32])
        .xor_address(AttributeType::XOR_MAPPED_ADDRESS, *addr)
        .address(AttributeType::ALTERNATE_SERVER, *addr)
        .alternate_domain(text)
        .password_algorithms(&[PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5])
        .password_algorithm(PasswordAlgorithm::SHA256);
    let kind = if answer.sha256 { IntegrityKind::Sha256 } else { IntegrityKind::Sha1 };
    let key = IntegrityKey::new(PASSWORD.as_bytes());
    let len = builder.integrity(kind, &key).fingerprint().expect("there is room");
    out.truncate(len);
    out
}

fn their_bytes(answer: &Answer) -> Vec<u8> {
    let Answer { text, addr, code, .. } = answer;
    let id = answer.id.iter().fold(0, |id: u128, byte| id << 8 | u128::from(*byte));
    let kind = their_message::MessageType::from_class_method(
        their_message::MessageClass::Error,
        their_message::BINDING,
    );
    let writer = their_message::MessageWriteVec::new();
    let mut writer = their_message::Message::builder(kind, id.into(), writer);
    let unknown: Vec<_> =
        answer.unknown.iter().map(|kind| theirs::AttributeType::new(*kind)).collect();
    let algorithms = [theirs::PasswordAlgorithmValue::SHA256, theirs::PasswordAlgorithmValue::MD5];
    let attributes: [Box<dyn theirs::AttributeWrite>; 12] = [
        Box::new(theirs::ErrorCode::new(*code, reason_phrase(*code)).expect("in range")),
        Box::new(theirs::UnknownAttributes::new(&unknown)),
        Box::new(theirs::Username::new(text).expect("short")),
        Box::new(theirs::Realm::new(text).expect("short")),
        Box::new(theirs::Nonce::new(text).expect("short")),
        Box::new(theirs::Software::new(text).expect("short")),
        Box::new(theirs::Userhash::new([7; 32])),
        Box::new(theirs::XorMappedAddress::new(*addr, id.into())),
        Box::new(theirs::AlternateServer::new(*addr)),
        Box::new(theirs::AlternateDomain::new(text)),
        Box::new(theirs::PasswordAlgorithms::new(&algorithms)),
        Box::new(theirs::PasswordAlgorithm::new(theirs::PasswordAlgorithmValue::SHA256)),
    ];
    for attribute in &attributes {
        writer.add_attribute(attribute.as_ref()).expect("a new one");
    }
    let credentials = their_message::ShortTermCredentials::new(PASSWORD.to_owned()).into();
    let algorithm = if answer.sha256 {
        their_message::IntegrityAlgorithm::Sha256
    } else {
        their_message::IntegrityAlgorithm::Sha1
    };
    writer.add_message_integrity(&credentials, algorithm).expect("there is none yet");
    writer.add_fingerprint().expect("there is none yet");
    writer.finish()
}
