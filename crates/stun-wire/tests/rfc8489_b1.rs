//! 8489-B.1-01: the vector of RFC 8489 appendix B.1 is faulty and refused; its USERHASH is right. A
//! separate vector has the intended features.

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method, ParseError,
    PasswordAlgorithm, SecurityFeatures, long_term_key_sha256, opaque_string, userhash, value,
};

use crate::common;
use crate::common::vectors::{B1, B1_REPAIRED};

const USER: &str = "マトリックス";
const REALM: &str = "example.org";
const PASSWORD: &str = "TheMatrIX";

#[test]
fn printed_length_field_is_refused() {
    assert_eq!(Message::parse(B1).unwrap_err(), ParseError::LengthMismatch);
}

#[test]
fn printed_hmac_covers_the_wrong_length_and_is_refused() {
    let mut repaired_length = B1.to_vec();
    common::set_length(&mut repaired_length, B1.len() - 20);
    let message = Message::parse(&repaired_length).unwrap();
    let key = long_term_key_sha256(USER, REALM, PASSWORD).unwrap();
    assert!(!message.verify(&IntegrityKey::new(&key)));
}

#[test]
fn printed_nonce_announces_nothing() {
    let nonce = "obMatJos2AAACf//499k954d6OL34oL9FSTvy64sA";
    assert_eq!(SecurityFeatures::of_nonce(nonce), Some(SecurityFeatures::default()));
}

#[test]
fn printed_password_is_no_opaque_string() {
    // U+00AD is a default-ignorable character, which the profile forbids.
    assert!(opaque_string("The\u{AD}M\u{AA}tr\u{2168}").is_err());
}

#[test]
fn printed_userhash_is_right() {
    assert_eq!(B1[24..56], userhash(USER, REALM).unwrap());
}

#[test]
fn repaired_vector_is_read() {
    let message = Message::parse(B1_REPAIRED).unwrap();
    let first = |kind| message.first(kind).unwrap();

    let hash = value::userhash(first(AttributeType::USERHASH)).unwrap();
    assert_eq!(hash, userhash(USER, REALM).unwrap());
    let nonce = value::nonce(first(AttributeType::NONCE)).unwrap();
    let both = SecurityFeatures { password_algorithms: true, username_anonymity: true };
    assert_eq!(SecurityFeatures::of_nonce(nonce), Some(both));
    let algorithms: Vec<_> =
        value::password_algorithms(first(AttributeType::PASSWORD_ALGORITHMS)).collect();
    assert_eq!(algorithms, [Ok(PasswordAlgorithm::SHA256), Ok(PasswordAlgorithm::MD5)]);
    let algorithm = value::password_algorithm(first(AttributeType::PASSWORD_ALGORITHM));
    assert_eq!(algorithm, Ok(PasswordAlgorithm::SHA256));
    let key = long_term_key_sha256(USER, REALM, PASSWORD).unwrap();
    assert!(message.verify(&IntegrityKey::new(&key)));
}

#[test]
fn repaired_vector_is_built_byte_for_byte() {
    let key = long_term_key_sha256(USER, REALM, PASSWORD).unwrap();
    let id = Message::parse(B1_REPAIRED).unwrap().transaction_id();
    let mut out = [0xFF; 200];

    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::BINDING, id);
    builder
        .userhash(&userhash(USER, REALM).unwrap())
        .nonce("obMatJos2wAAAf//499k954d6OL34oL9FSTvy64sA")
        .realm(REALM)
        .password_algorithms(&[PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5])
        .password_algorithm(PasswordAlgorithm::SHA256);
    let len = builder.integrity(IntegrityKind::Sha256, &IntegrityKey::new(&key)).finish().unwrap();

    assert_eq!(out[..len], *B1_REPAIRED);
}
