//! The four messages of RFC 5769 §2: parsed, verified and, if padded with zeros, also written.

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
    long_term_key_md5, value,
};

use crate::common;
use crate::common::vectors::{REQUEST, REQUEST_LONG_TERM, RESPONSE_IPV4, RESPONSE_IPV6};

const PASSWORD: &[u8] = b"VOkJxbRl1RmTxUk/WvJxBt";

#[test]
fn request() {
    let message = Message::parse(REQUEST).unwrap();

    assert_eq!((message.class(), message.method()), (Class::Request, Method::BINDING));
    assert_eq!(message.transaction_id().0, common::ID);
    let kinds: Vec<_> = message.attributes().map(|attribute| attribute.kind).collect();
    assert_eq!(
        kinds,
        [
            AttributeType::SOFTWARE,
            AttributeType::PRIORITY,
            AttributeType::ICE_CONTROLLED,
            AttributeType::USERNAME
        ]
    );
    let software = value::software(message.first(AttributeType::SOFTWARE).unwrap());
    assert_eq!(software, Ok("STUN test client"));
    let username = value::username(message.first(AttributeType::USERNAME).unwrap());
    assert_eq!(username, Ok("evtj:h6vY"));
    assert_eq!(message.first(AttributeType::PRIORITY), Some(&[0x6e, 0x00, 0x01, 0xff][..]));
    // 8489-14.5-01, 8489-14.7-01
    assert!(message.has_fingerprint());
    assert!(message.verify(&IntegrityKey::new(PASSWORD)));
    assert!(!message.verify(&IntegrityKey::new(b"VOkJxbRl1RmTxUk/WvJxBu")));
}

#[test]
fn responses() {
    for (bytes, address) in [
        (RESPONSE_IPV4, "192.0.2.1:32853"),
        (RESPONSE_IPV6, "[2001:db8:1234:5678:11:2233:4455:6677]:32853"),
    ] {
        let message = Message::parse(bytes).unwrap();
        assert_eq!((message.class(), message.method()), (Class::Success, Method::BINDING));
        // 8489-14.2-01
        let mapped = message.first(AttributeType::XOR_MAPPED_ADDRESS).unwrap();
        let mapped = value::xor_address(mapped, message.transaction_id());
        assert_eq!(mapped, Ok(address.parse().unwrap()));
        assert!(message.has_fingerprint());
        assert!(message.verify(&IntegrityKey::new(PASSWORD)));
    }
}

#[test]
fn long_term_request() {
    let message = Message::parse(REQUEST_LONG_TERM).unwrap();
    let username = value::username(message.first(AttributeType::USERNAME).unwrap()).unwrap();
    let realm = value::realm(message.first(AttributeType::REALM).unwrap()).unwrap();
    let nonce = value::nonce(message.first(AttributeType::NONCE).unwrap()).unwrap();

    assert_eq!(username, "マトリックス");
    assert_eq!((realm, nonce), ("example.org", "f//499k954d6OL34oL9FSTvy64sA"));
    assert!(!message.has_fingerprint());
    let key = long_term_key_md5(username, realm, "TheMatrIX").unwrap();
    assert!(message.verify(&IntegrityKey::new(&key)));
}

/// The message is padded with zeros, so the builder creates identical bytes.
#[test]
fn long_term_request_is_built_byte_for_byte() {
    let key = long_term_key_md5("マトリックス", "example.org", "TheMatrIX").unwrap();
    let id = Message::parse(REQUEST_LONG_TERM).unwrap().transaction_id();
    let mut out = [0xFF; 200];

    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::BINDING, id);
    builder.username("マトリックス").nonce("f//499k954d6OL34oL9FSTvy64sA").realm("example.org");
    let len = builder.integrity(IntegrityKind::Sha1, &IntegrityKey::new(&key)).finish().unwrap();

    assert_eq!(out[..len], *REQUEST_LONG_TERM);
}
