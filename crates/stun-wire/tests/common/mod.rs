//! A second, naive writer of messages, for messages that the builder cannot create.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod vectors;

use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// The transaction id of the vectors in RFC 5769 §2.1.
pub(crate) const ID: [u8; 12] =
    [0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae];

/// Returns a header and a body. The length field is that of the body.
pub(crate) fn message(message_type: u16, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("a body fits its length field");
    let mut out = Vec::new();
    out.extend_from_slice(&message_type.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
    out.extend_from_slice(&ID);
    out.extend_from_slice(body);
    out
}

/// Returns one attribute, padded with zeros.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute_padded(kind, value, 0)
}

/// Returns one attribute, padded with `padding`.
pub(crate) fn attribute_padded(kind: u16, value: &[u8], padding: u8) -> Vec<u8> {
    let len = u16::try_from(value.len()).expect("a value fits its length field");
    let mut out = Vec::new();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), padding);
    out
}

/// Appends an attribute to a message and corrects its length field.
pub(crate) fn append(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&attribute(kind, value));
    let len = message.len() - 20;
    set_length(message, len);
}

/// Sets the length field.
pub(crate) fn set_length(message: &mut [u8], len: usize) {
    let len = u16::try_from(len).expect("a length fits its field");
    message[2..4].copy_from_slice(&len.to_be_bytes());
}

/// Appends a correct FINGERPRINT.
pub(crate) fn append_fingerprint(message: &mut Vec<u8>) {
    let value = fingerprint_of_length(message, message.len() + 8 - 20);
    append(message, 0x8028, &value);
}

/// Computes FINGERPRINT after these bytes, in a message with the length field `len`, by an
/// independent bitwise CRC-32.
pub(crate) fn fingerprint_of_length(before: &[u8], len: usize) -> [u8; 4] {
    let mut before = before.to_vec();
    set_length(&mut before, len);
    let mut crc = u32::MAX;
    for byte in before {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    (!crc ^ 0x5354_554E).to_be_bytes()
}

/// Appends a MESSAGE-INTEGRITY that is correct at this position.
pub(crate) fn append_sha1(message: &mut Vec<u8>, key: &[u8]) {
    let len = message.len() + 24 - 20;
    set_length(message, len);
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(key).expect("any length will do");
    mac.update(message);
    append(message, 0x0008, &mac.finalize().into_bytes());
}

/// Appends a MESSAGE-INTEGRITY-SHA256 that is correct at this position.
pub(crate) fn append_sha256(message: &mut Vec<u8>, key: &[u8]) {
    append_sha256_truncated(message, key, 32);
}

/// Appends a MESSAGE-INTEGRITY-SHA256 truncated to `len` bytes, or extended with zeros.
pub(crate) fn append_sha256_truncated(message: &mut Vec<u8>, key: &[u8], len: usize) {
    let total = message.len() + 4 + len.next_multiple_of(4) - 20;
    set_length(message, total);
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("any length will do");
    mac.update(message);
    let mut mac = mac.finalize().into_bytes().to_vec();
    mac.resize(len, 0);
    append(message, 0x001C, &mac);
}

/// Returns a configuration with other cases in each run; `SEED=n` repeats a run.
pub(crate) fn seeded(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(test_support::fresh_seed());
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..Default::default() }
}
