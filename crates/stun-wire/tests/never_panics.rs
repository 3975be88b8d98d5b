//! No input makes a decoder panic, and accepted messages satisfy all guarantees. The checks are
//! those of the fuzz targets.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::common;
use crate::common::vectors::{B1, WELL_FORMED};
use crate::fuzz_targets;

fn everything(bytes: &[u8]) {
    fuzz_targets::packet(bytes);
    fuzz_targets::message(bytes);
    fuzz_targets::channel_data(bytes);
    fuzz_targets::stream(bytes);
    fuzz_targets::attribute_values(bytes);
}

#[test]
fn every_truncation() {
    for vector in WELL_FORMED.iter().chain(&[B1]) {
        for len in 0..=vector.len() {
            everything(&vector[..len]);
            // With a correct length field, the attributes are parsed.
            if len >= 20 {
                let mut fitting = vector[..len].to_vec();
                common::set_length(&mut fitting, len - 20);
                everything(&fitting);
            }
        }
    }
}

#[test]
fn every_byte_changed() {
    for vector in WELL_FORMED {
        // FINGERPRINT would reject most changes before any other check.
        let mut bytes = vector.to_vec();
        if bytes[bytes.len() - 8..][..4] == [0x80, 0x28, 0x00, 0x04] {
            bytes.truncate(bytes.len() - 8);
            let len = bytes.len() - 20;
            common::set_length(&mut bytes, len);
        }
        for at in 0..bytes.len() {
            let right = bytes[at];
            for wrong in [0x00, 0x01, 0x7F, 0x80, 0xFF, right ^ 1, right ^ 4, right ^ 0x80] {
                bytes[at] = wrong;
                fuzz_targets::packet(&bytes);
                fuzz_targets::message(&bytes);
                fuzz_targets::stream(&bytes);
            }
            bytes[at] = right;
        }
    }
}

#[test]
fn attributes_without_end() {
    // The maximum number of attributes that a message can contain.
    for kind in [0x7E01, 0x8022, 0x0008, 0x001C] {
        let body = common::attribute(kind, &[]).repeat(16383);
        everything(&common::message(0x0001, &body));
    }
}

proptest! {
    #![proptest_config(common::seeded(1000))]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..200)) {
        everything(&bytes);
    }

    /// A correct header, so that the body is parsed.
    #[test]
    fn random_bodies(message_type in 0..0x4000_u16, mut body in vec(any::<u8>(), 0..200)) {
        body.truncate(body.len() / 4 * 4);
        everything(&common::message(message_type, &body));
    }

    /// Attributes that fit, of known types, with random values.
    #[test]
    fn random_attributes(
        attributes in vec((0..100_usize, vec(any::<u8>(), 0..40)), 0..10),
        fingerprint in any::<bool>(),
    ) {
        let named = stun_wire::AttributeType::NAMED;
        let body: Vec<_> = attributes
            .iter()
            .flat_map(|(index, value)| common::attribute(named[index % named.len()].0, value))
            .collect();
        let mut bytes = common::message(0x0003, &body);
        if fingerprint {
            common::append_fingerprint(&mut bytes);
        }
        everything(&bytes);
    }

    #[test]
    fn random_channel_data(number in 0x4000..0x5000_u16, data in vec(any::<u8>(), 0..100)) {
        everything(&[&number.to_be_bytes()[..], &data].concat());
    }
}
