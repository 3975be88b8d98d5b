//! RFC 8489 §9, §14.5 to §14.7: the integrity attributes in effect, and their coverage.

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method, ParseError,
    SealedBuilder, TransactionId, long_term_key_md5,
};

use crate::common;
use crate::common::vectors::{BOTH_INTEGRITIES, REQUEST, TRUNCATED};
use crate::common::{
    append, append_fingerprint, append_sha256, append_sha256_truncated, attribute,
    fingerprint_of_length, message, set_length,
};

fn key() -> IntegrityKey {
    let raw = long_term_key_md5("user", "realm", "pass").expect("plain ASCII");
    IntegrityKey::new(&raw)
}

/// A Refresh with LIFETIME 600, sealed by `seal`.
fn sealed(seal: fn(MessageBuilder<'_>) -> SealedBuilder<'_>) -> Vec<u8> {
    let mut out = vec![0; 200];
    let id = TransactionId(common::ID);
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::REFRESH, id);
    builder.lifetime(600);
    let len = seal(builder).finish().expect("it fits");
    out.truncate(len);
    out
}

fn with_sha1(builder: MessageBuilder<'_>) -> SealedBuilder<'_> {
    builder.integrity(IntegrityKind::Sha1, &key())
}

fn with_sha256(builder: MessageBuilder<'_>) -> SealedBuilder<'_> {
    builder.integrity(IntegrityKind::Sha256, &key())
}

fn kinds(message: &Message<'_>) -> Vec<u16> {
    message.attributes().map(|attribute| attribute.kind.0).collect()
}

/// 8489-9-01: attributes after MESSAGE-INTEGRITY are ignored, except MESSAGE-INTEGRITY-SHA256 and
/// FINGERPRINT.
#[test]
fn attributes_behind_message_integrity_are_ignored() {
    let mut bytes = sealed(with_sha1);
    append(&mut bytes, 0x0019, &[17, 0, 0, 0]);
    append(&mut bytes, 0x7E05, &[]);
    append(&mut bytes, 0x0008, &[0; 20]);
    append_fingerprint(&mut bytes);

    let message = Message::parse(&bytes).unwrap();

    assert_eq!(kinds(&message), [0x000D]);
    assert_eq!(message.first(AttributeType::REQUESTED_TRANSPORT), None);
    assert_eq!(message.unknown_required(|kind| kind == AttributeType::LIFETIME).count(), 0);
    assert!(message.has_fingerprint());
    assert!(message.verify(&key()), "the second MESSAGE-INTEGRITY does not count");
}

/// 8489-9-01: MESSAGE-INTEGRITY-SHA256 after MESSAGE-INTEGRITY is in effect, even after an ignored
/// attribute, which the HMAC covers.
#[test]
fn sha256_behind_message_integrity_counts() {
    let mut right = sealed(with_sha1);
    append(&mut right, 0x8022, b"ignored");
    let mut wrong = right.clone();
    append_sha256(&mut right, key().raw());
    append(&mut wrong, 0x001C, &[0; 32]);

    let message = Message::parse(&right).unwrap();
    assert_eq!(message.integrity().sha1.map(<[u8]>::len), Some(20));
    assert_eq!(message.integrity().sha256.map(<[u8]>::len), Some(32));
    assert_eq!(message.first(AttributeType::SOFTWARE), None);
    assert!(message.verify(&key()));
    let message = Message::parse(&wrong).unwrap();
    assert!(!message.verify(&key()), "SHA256 decides, and it is wrong");
}

/// 8489-9-02: attributes after MESSAGE-INTEGRITY-SHA256, including MESSAGE-INTEGRITY, are ignored,
/// except FINGERPRINT.
#[test]
fn message_integrity_behind_sha256_is_ignored() {
    let mut bytes = sealed(with_sha256);
    append(&mut bytes, 0x0008, &[0; 20]);
    append(&mut bytes, 0x001C, &[0; 32]);
    append(&mut bytes, 0x0006, b"user");
    append_fingerprint(&mut bytes);

    let message = Message::parse(&bytes).unwrap();

    assert_eq!(message.integrity().sha1, None);
    assert_eq!(message.first(AttributeType::USERNAME), None);
    assert!(message.verify(&key()));
}

/// 8489-9.2.4-13: if both are present, only SHA256 is verified.
#[test]
fn sha256_decides_when_both_are_there() {
    let mut right = sealed(with_sha1);
    append_sha256(&mut right, key().raw());
    assert!(Message::parse(&right).unwrap().verify(&key()));

    let mut wrong_sha256 = right.clone();
    *wrong_sha256.last_mut().unwrap() ^= 1;
    assert!(!Message::parse(&wrong_sha256).unwrap().verify(&key()));

    let wrong_sha1 = sealed(|mut builder| {
        builder.attribute(AttributeType::MESSAGE_INTEGRITY, &[0; 20]);
        with_sha256(builder)
    });
    let message = Message::parse(&wrong_sha1).unwrap();
    assert!(message.integrity().sha1.is_some());
    assert!(message.verify(&key()));
}

#[test]
fn vector_with_both_is_read() {
    let message = Message::parse(BOTH_INTEGRITIES).unwrap();
    assert!(message.has_fingerprint());
    assert!(message.verify(&key()));
    assert!(message.integrity().sha1.is_some() && message.integrity().sha256.is_some());
}

/// 8489-14.5-01: MESSAGE-INTEGRITY has 20 bytes, and every covered bit matters.
#[test]
fn every_covered_bit_counts() {
    let key = IntegrityKey::new(b"VOkJxbRl1RmTxUk/WvJxBt");
    // Without FINGERPRINT, which would be checked first.
    let mut bytes = REQUEST[..REQUEST.len() - 8].to_vec();
    set_length(&mut bytes, REQUEST.len() - 8 - 20);
    assert!(Message::parse(&bytes).unwrap().verify(&key));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let accepted = Message::parse(&changed).is_ok_and(|message| message.verify(&key));
        assert!(!accepted, "bit {bit} was changed and nobody noticed");
    }
}

/// 8489-14.5-01: any other length is retained for the caller, and never verifies.
#[test]
fn wrong_lengths_of_message_integrity_never_verify() {
    for len in [0, 4, 16, 19, 21, 24, 32] {
        let mut bytes = message(0x0004, &[]);
        append(&mut bytes, 0x0008, &vec![0; len]);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.integrity().sha1.map(<[u8]>::len), Some(len));
        assert!(!message.verify(&key()));
    }
}

/// 8489-14.6-01: TURN allows no truncation.
#[test]
fn truncated_sha256_never_verifies() {
    let message = Message::parse(TRUNCATED).unwrap();
    assert_eq!(message.integrity().sha256.map(<[u8]>::len), Some(16));
    assert!(!message.verify(&key()));
}

/// 8489-14.6-01: only 32 bytes are valid, even if a shorter HMAC is a correct prefix.
#[test]
fn lengths_of_sha256() {
    for len in 0..=40 {
        let mut bytes = message(0x0004, &[]);
        append_sha256_truncated(&mut bytes, key().raw(), len);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.integrity().sha256.map(<[u8]>::len), Some(len));
        assert_eq!(message.verify(&key()), len == 32, "{len} bytes");
    }
}

#[test]
fn no_integrity_verifies_nothing() {
    let bytes = message(0x0004, &[]);
    let message = Message::parse(&bytes).unwrap();
    assert!(!message.integrity().is_present());
    assert!(!message.verify(&key()));
}

/// 8489-14.7-01: FINGERPRINT must be last, have four bytes, and be right.
#[test]
fn fingerprint_must_be_last_and_right() {
    let body = attribute(0x8022, b"name");
    let mut good = message(0x0001, &body);
    append_fingerprint(&mut good);
    assert!(Message::parse(&good).unwrap().has_fingerprint());
    assert_eq!(kinds(&Message::parse(&good).unwrap()), [0x8022]);

    // 8489-6.3-06: every bit of the message is covered.
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        // A changed type or length of FINGERPRINT makes it another, unchecked attribute.
        let still = Message::parse(&changed).is_ok_and(|message| message.has_fingerprint());
        assert!(!still, "bit {bit}");
    }

    let mut not_last = good.clone();
    append(&mut not_last, 0x8022, b"behind");
    assert_eq!(Message::parse(&not_last).unwrap_err(), ParseError::Fingerprint);

    // Not last, although the CRC is right for a length that includes the following attribute.
    let mut bytes = message(0x0001, &[]);
    append_fingerprint(&mut bytes);
    let fingerprint = fingerprint_of_length(&bytes[..20], 8 + 4);
    bytes[24..28].copy_from_slice(&fingerprint);
    append(&mut bytes, 0x8022, &[]);
    assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::Fingerprint);

    let mut twice = good.clone();
    append_fingerprint(&mut twice);
    assert_eq!(Message::parse(&twice).unwrap_err(), ParseError::Fingerprint);

    for len in [0, 3, 5, 8] {
        let mut bytes = message(0x0001, &body);
        append(&mut bytes, 0x8028, &vec![0; len]);
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::Fingerprint);
    }
}

/// 8489-14.7-01: made after the integrity, and not counted in the integrity's length field.
#[test]
fn fingerprint_covers_the_integrity() {
    for kind in [IntegrityKind::Sha1, IntegrityKind::Sha256] {
        let mut out = [0; 200];
        let mut builder = MessageBuilder::new(
            &mut out,
            Class::Success,
            Method::REFRESH,
            TransactionId(common::ID),
        );
        builder.lifetime(600);
        let len = builder.integrity(kind, &key()).fingerprint().unwrap();
        let message = Message::parse(&out[..len]).unwrap();
        assert!(message.has_fingerprint());
        assert!(message.verify(&key()));

        out[len - 9] ^= 1;
        assert_eq!(Message::parse(&out[..len]).unwrap_err(), ParseError::Fingerprint);
    }
}

#[test]
fn keys_of_any_length() {
    for len in [0, 1, 16, 32, 63, 64, 65, 200] {
        let raw = vec![0x5A; len];
        let key = IntegrityKey::new(&raw);
        assert_eq!(key.raw(), raw);
        for kind in [IntegrityKind::Sha1, IntegrityKind::Sha256] {
            let mut out = [0; 100];
            let builder = MessageBuilder::new(
                &mut out,
                Class::Request,
                Method::BINDING,
                TransactionId(common::ID),
            );
            let end = builder.integrity(kind, &key).finish().unwrap();
            let message = Message::parse(&out[..end]).unwrap();
            assert!(message.verify(&key.clone()));
            assert!(!message.verify(&IntegrityKey::new(&[0xA5; 16])));
        }
    }
}

#[test]
fn a_key_does_not_show_itself() {
    let shown = format!("{:?}", IntegrityKey::new(b"secret key"));
    assert_eq!(shown, "IntegrityKey(<secret>)");
}
