//! Parsing of built messages returns the original values.

use std::net::{IpAddr, SocketAddr};

use crate::common;

use proptest::collection::vec;
use proptest::prelude::*;
use stun_wire::{
    AttributeType, ChannelNumber, Class, Icmp, IntegrityKey, IntegrityKind, Message,
    MessageBuilder, Method, PasswordAlgorithm, TransactionId, channel_data, value,
    write_channel_header,
};

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(vec![Class::Request, Class::Indication, Class::Success, Class::Error])
}

fn method() -> impl Strategy<Value = Method> {
    (0..=0xFFF_u16).prop_map(|number| Method::new(number).expect("12 bits"))
}

fn addr() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

/// Generates any type except those with a fixed position.
fn kind() -> impl Strategy<Value = AttributeType> {
    let special = [
        AttributeType::MESSAGE_INTEGRITY,
        AttributeType::MESSAGE_INTEGRITY_SHA256,
        AttributeType::FINGERPRINT,
    ];
    any::<u16>()
        .prop_map(AttributeType)
        .prop_filter("has a place of its own", move |kind| !special.contains(kind))
}

fn seal() -> impl Strategy<Value = Option<IntegrityKind>> {
    prop::sample::select(vec![None, Some(IntegrityKind::Sha1), Some(IntegrityKind::Sha256)])
}

proptest! {
    #![proptest_config(common::seeded(1000))]

    #[test]
    fn messages(
        class in class(),
        method in method(),
        id in any::<[u8; 12]>(),
        attributes in vec((kind(), vec(any::<u8>(), 0..40)), 0..12),
        seal in seal(),
        fingerprint in any::<bool>(),
        raw_key in vec(any::<u8>(), 0..80),
    ) {
        let key = IntegrityKey::new(&raw_key);
        let mut out = [0xFF; 1000];
        let mut builder = MessageBuilder::new(&mut out, class, method, TransactionId(id));
        for (kind, value) in &attributes {
            builder.attribute(*kind, value);
        }
        let len = match (seal, fingerprint) {
            (None, false) => builder.finish(),
            (None, true) => builder.fingerprint(),
            (Some(kind), false) => builder.integrity(kind, &key).finish(),
            (Some(kind), true) => builder.integrity(kind, &key).fingerprint(),
        };
        let bytes = &out[..len.unwrap()];

        let message = Message::parse(bytes).unwrap();

        prop_assert_eq!(message.class(), class);
        prop_assert_eq!(message.method(), method);
        prop_assert_eq!(message.transaction_id(), TransactionId(id));
        prop_assert_eq!(message.bytes(), bytes);
        prop_assert_eq!(message.has_fingerprint(), fingerprint);
        let read: Vec<_> = message
            .attributes()
            .map(|attribute| (attribute.kind, attribute.value.to_vec()))
            .collect();
        prop_assert_eq!(&read, &attributes);
        for (kind, _) in &attributes {
            let first = attributes.iter().find(|(other, _)| other == kind);
            prop_assert_eq!(message.first(*kind), first.map(|(_, value)| &value[..]));
        }
        let (sha1, sha256) = match seal {
            None => (None, None),
            Some(IntegrityKind::Sha1) => (Some(20), None),
            Some(IntegrityKind::Sha256) => (None, Some(32)),
        };
        let integrity = message.integrity();
        prop_assert_eq!(integrity.sha1.map(<[u8]>::len), sha1);
        prop_assert_eq!(integrity.sha256.map(<[u8]>::len), sha256);
        prop_assert_eq!(message.verify(&key), integrity.is_present());
        let mut other = raw_key;
        other.push(1);
        prop_assert!(!message.verify(&IntegrityKey::new(&other)));
    }

    #[test]
    fn addresses(addr in addr(), id in any::<[u8; 12]>()) {
        let mut out = [0; 100];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Success, Method::BINDING, TransactionId(id));
        builder.address(AttributeType::MAPPED_ADDRESS, addr);
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr);
        let len = builder.finish().unwrap();
        let message = Message::parse(&out[..len]).unwrap();
        let plain = message.first(AttributeType::MAPPED_ADDRESS).unwrap();
        prop_assert_eq!(value::address(plain), Ok(addr));
        let xored = message.first(AttributeType::XOR_MAPPED_ADDRESS).unwrap();
        prop_assert_eq!(value::xor_address(xored, TransactionId(id)), Ok(addr));
    }

    #[test]
    fn values(
        number in any::<u32>(),
        byte in any::<u8>(),
        flag in any::<bool>(),
        token in any::<[u8; 8]>(),
        channel in 0x4000..=0x4FFF_u16,
        code in 300..700_u16,
        text in "\\PC{0,120}",
        icmp in (0..128_u8, 0..512_u16, any::<u32>()),
        algorithms in vec(any::<u16>(), 0..10),
        kinds in vec(any::<u16>(), 0..10),
    ) {
        let icmp = Icmp { kind: icmp.0, code: icmp.1, data: icmp.2 };
        let algorithms: Vec<_> = algorithms.into_iter().map(PasswordAlgorithm).collect();
        let kinds: Vec<_> = kinds.into_iter().map(AttributeType).collect();
        let mut out = [0; 2000];
        let id = TransactionId(common::ID);
        let mut builder = MessageBuilder::new(&mut out, Class::Success, Method::ALLOCATE, id);
        builder
            .lifetime(number)
            .connection_id(number)
            .requested_transport(byte)
            .requested_address_family(byte)
            .even_port(flag)
            .reservation_token(token)
            .channel_number(ChannelNumber::new(channel).unwrap())
            .error_code(code, &text)
            .address_error_code(byte, code, &text)
            .software(&text)
            .icmp(icmp)
            .password_algorithms(&algorithms)
            .unknown_attributes(&kinds);
        let len = builder.finish().unwrap();
        let message = Message::parse(&out[..len]).unwrap();
        let first = |kind| message.first(kind).unwrap();

        prop_assert_eq!(value::lifetime(first(AttributeType::LIFETIME)), Ok(number));
        prop_assert_eq!(value::connection_id(first(AttributeType::CONNECTION_ID)), Ok(number));
        prop_assert_eq!(
            value::requested_transport(first(AttributeType::REQUESTED_TRANSPORT)),
            Ok(byte)
        );
        prop_assert_eq!(
            value::address_family(first(AttributeType::REQUESTED_ADDRESS_FAMILY)),
            Ok(byte)
        );
        prop_assert_eq!(value::even_port(first(AttributeType::EVEN_PORT)), Ok(flag));
        prop_assert_eq!(
            value::reservation_token(first(AttributeType::RESERVATION_TOKEN)),
            Ok(token)
        );
        prop_assert_eq!(value::channel_number(first(AttributeType::CHANNEL_NUMBER)), Ok(channel));
        prop_assert_eq!(value::error_code(first(AttributeType::ERROR_CODE)), Ok((code, &text[..])));
        prop_assert_eq!(
            value::address_error_code(first(AttributeType::ADDRESS_ERROR_CODE)),
            Ok((byte, code, &text[..]))
        );
        prop_assert_eq!(value::software(first(AttributeType::SOFTWARE)), Ok(&text[..]));
        prop_assert_eq!(value::icmp(first(AttributeType::ICMP)), Ok(icmp));
        let read: Result<Vec<_>, _> =
            value::password_algorithms(first(AttributeType::PASSWORD_ALGORITHMS)).collect();
        prop_assert_eq!(read, Ok(algorithms));
        let read: Vec<_> =
            value::unknown_attributes(first(AttributeType::UNKNOWN_ATTRIBUTES)).collect();
        prop_assert_eq!(read, kinds);
    }

    #[test]
    fn channel_frames(number in 0x4000..=0x4FFF_u16, data in vec(any::<u8>(), 0..100)) {
        let mut bytes = vec![0; 4];
        let head = bytes.first_chunk_mut().unwrap();
        write_channel_header(head, ChannelNumber::new(number).unwrap(), data.len() as u16);
        bytes.extend_from_slice(&data);
        let read = channel_data(&bytes).unwrap();
        prop_assert_eq!((read.number, read.data), (number, &data[..]));
    }
}
