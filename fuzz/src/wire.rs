//! Targets for `stun-wire`: each takes any bytes, must not panic, and checks the invariants of
//! accepted input.

use stun_wire::{
    AccessTokenBlock, AttributeType, ChannelNumber, Class, Cut, IntegrityKey, Message,
    MessageBuilder, Method, PacketKind, TransactionId, channel_data as read_channel_data, classify,
    next_message, value, write_channel_header,
};

/// A datagram from the network: at most one interpretation is valid.
pub fn packet(bytes: &[u8]) {
    let kind = classify(bytes);
    if Message::parse(bytes).is_ok() || Message::parse_classic(bytes).is_ok() {
        // RFC 8489 §5 reserves two bits, RFC 7983 gives us less: types from 0x0400 parse, but no
        // server looks at them.
        assert!(bytes[0] < 0x40 && (bytes[0] > 3 || kind == PacketKind::Stun));
    }
    assert_eq!(
        kind == PacketKind::ChannelData && bytes.len() >= 4,
        !matches!(
            read_channel_data(bytes),
            Err(stun_wire::ParseError::NotChannelData | stun_wire::ParseError::TooShort)
        )
    );
}

/// A message: reads every field, and rebuilds the same bytes.
pub fn message(bytes: &[u8]) {
    if let Ok(classic) = Message::parse_classic(bytes) {
        for attribute in classic.attributes() {
            attribute_values(attribute.value);
            assert!(classic.first(attribute.kind).is_some());
        }
        assert_eq!(classic.transaction_id(), bytes[4..20]);
    }
    let Ok(message) = Message::parse(bytes) else {
        return;
    };
    let key = IntegrityKey::new(b"no message is made with this key");
    assert!(!message.verify(&key));
    let unknown: Vec<_> = message.unknown_required(|kind| kind.name().is_some()).collect();
    assert!(unknown.iter().all(|kind| kind.is_comprehension_required()));
    for (index, attribute) in message.attributes().enumerate() {
        // A message of 64 KiB has room for 16,000 of them: enough is enough.
        if index < 64 {
            attribute_values(attribute.value);
            assert!(message.first(attribute.kind).is_some());
        }
        let special = [
            AttributeType::MESSAGE_INTEGRITY,
            AttributeType::MESSAGE_INTEGRITY_SHA256,
            AttributeType::FINGERPRINT,
        ];
        assert!(!special.contains(&attribute.kind));
    }
    build_again(&message);
}

fn build_again(message: &Message<'_>) {
    let mut out = vec![0xFF; message.bytes().len()];
    let mut builder =
        MessageBuilder::new(&mut out, message.class(), message.method(), message.transaction_id());
    for attribute in message.attributes() {
        builder.attribute(attribute.kind, attribute.value);
    }
    let len = builder.finish().expect("it fitted before");
    let again = Message::parse(&out[..len]).expect("what we build is well formed");
    assert!(again.attributes().eq(message.attributes()));
    assert_eq!((again.class(), again.method()), (message.class(), message.method()));
    assert_eq!(again.transaction_id(), message.transaction_id());
}

/// ChannelData: encoding returns the same bytes, without any that followed the data.
pub fn channel_data(bytes: &[u8]) {
    let Ok(read) = read_channel_data(bytes) else {
        return;
    };
    let number = ChannelNumber::new(read.number).expect("what is read is a channel number");
    let len = u16::try_from(read.data.len()).expect("the length came from 16 bits");
    let mut head = [0; 4];
    write_channel_header(&mut head, number, len);
    assert_eq!([&head[..], read.data].concat(), bytes[..4 + read.data.len()]);
}

/// A byte stream: the segmentation ends, and fewer bytes never give another message.
pub fn stream(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let cut = next_message(rest);
        // Short prefixes hold all the decisions.
        for len in 0..rest.len().min(24) {
            match next_message(&rest[..len]) {
                Cut::NeedMore { at_least } => assert!(at_least > len),
                Cut::Garbage => assert_eq!(cut, Cut::Garbage),
                sooner @ Cut::Message { .. } => assert_eq!(cut, sooner),
            }
        }
        match cut {
            Cut::NeedMore { at_least } => {
                assert!(at_least > rest.len() && at_least <= stun_wire::MESSAGE_LEN_MAX);
                return;
            }
            Cut::Garbage => return,
            Cut::Message { len, padded_len } => {
                assert!(len >= 4 && len <= padded_len && padded_len < len + 4);
                let (taken, behind) = rest.split_at(padded_len);
                if classify(taken) == PacketKind::ChannelData {
                    assert_eq!(
                        read_channel_data(&taken[..len]).map(|read| read.data.len()),
                        Ok(len - 4)
                    );
                } else {
                    message(taken);
                }
                rest = behind;
            }
        }
    }
}

/// Any bytes as the value of every attribute; decode, encode and decode are consistent.
pub fn attribute_values(bytes: &[u8]) {
    let texts = [
        value::username(bytes),
        value::realm(bytes),
        value::nonce(bytes),
        value::software(bytes),
        value::third_party_authorization(bytes),
        value::alternate_domain(bytes),
    ];
    assert!(texts.into_iter().flatten().all(|text| text.as_bytes() == bytes));
    if let Ok(nonce) = value::nonce(bytes) {
        let _ = stun_wire::SecurityFeatures::of_nonce(nonce);
    }
    let _ = value::userhash(bytes);
    let _ = value::cache_timeout(bytes);
    let _ = value::dont_fragment(bytes);
    assert!(value::unknown_attributes(bytes).count() == bytes.len() / 2);
    assert!(value::password_algorithms(bytes).count() <= bytes.len().div_ceil(4));
    address_values(bytes);
    turn_values(bytes);
    error_values(bytes);
    authentication_values(bytes);
    discovery_values(bytes);
}

/// Addresses, plain and XORed.
fn address_values(bytes: &[u8]) {
    let id = TransactionId(*b"transactions");
    if let Ok(addr) = value::address(bytes) {
        again(|b| b.address(AttributeType(1), addr), |v| assert_eq!(value::address(v), Ok(addr)));
    }
    if let Ok(addr) = value::xor_address(bytes, id) {
        again(
            |b| b.xor_address(AttributeType(1), addr),
            |v| assert_eq!(value::xor_address(v, id), Ok(addr)),
        );
    }
}

/// Values of TURN (RFC 8656, RFC 6062).
fn turn_values(bytes: &[u8]) {
    if let Ok(secs) = value::lifetime(bytes) {
        again(|b| b.lifetime(secs), |v| assert_eq!(v, bytes));
    }
    if let Ok(connection) = value::connection_id(bytes) {
        again(|b| b.connection_id(connection), |v| assert_eq!(v, bytes));
    }
    if let Ok(token) = value::reservation_token(bytes) {
        again(|b| b.reservation_token(token), |v| assert_eq!(v, bytes));
    }
    if let Ok(protocol) = value::requested_transport(bytes) {
        again(
            |b| b.requested_transport(protocol),
            |v| assert_eq!(value::requested_transport(v), Ok(protocol)),
        );
    }
    if let Ok(family) = value::address_family(bytes) {
        again(
            |b| b.requested_address_family(family),
            |v| assert_eq!(value::address_family(v), Ok(family)),
        );
    }
    if let Ok(reserve) = value::even_port(bytes) {
        again(|b| b.even_port(reserve), |v| assert_eq!(value::even_port(v), Ok(reserve)));
    }
    if let Ok(Some(number)) = value::channel_number(bytes).map(ChannelNumber::new) {
        again(
            |b| b.channel_number(number),
            |v| assert_eq!(value::channel_number(v), Ok(number.get())),
        );
    }
    if let Ok(icmp) = value::icmp(bytes) {
        again(|b| b.icmp(icmp), |v| assert_eq!(value::icmp(v), Ok(icmp)));
    }
}

/// Error codes.
fn error_values(bytes: &[u8]) {
    if let Ok((code, reason)) = value::error_code(bytes) {
        again(
            |b| b.error_code(code, reason),
            |v| assert_eq!(value::error_code(v), Ok((code, reason))),
        );
    }
    if let Ok(error) = value::address_error_code(bytes) {
        again(
            |b| b.address_error_code(error.0, error.1, error.2),
            |v| assert_eq!(value::address_error_code(v), Ok(error)),
        );
    }
}

/// Password algorithms and access tokens.
fn authentication_values(bytes: &[u8]) {
    if let Ok(algorithm) = value::password_algorithm(bytes) {
        again(
            |b| b.password_algorithm(algorithm),
            |v| assert_eq!(value::password_algorithm(v), Ok(algorithm)),
        );
    }
    if let Ok(token) = value::access_token(bytes) {
        again(|b| b.access_token(token), |v| assert_eq!(v, bytes));
    }
    if let Ok(block) = value::access_token_block(bytes) {
        block_again(block, bytes);
    }
}

/// Values of NAT behaviour discovery (RFC 5780).
fn discovery_values(bytes: &[u8]) {
    if let Ok(change) = value::change_request(bytes) {
        again(|b| b.change_request(change), |v| assert_eq!(value::change_request(v), Ok(change)));
    }
    if let Ok(port) = value::response_port(bytes) {
        again(|b| b.response_port(port), |v| assert_eq!(value::response_port(v), Ok(port)));
    }
}

/// Writes one attribute and hands its value to `check`.
fn again(
    write: impl for<'a, 'b> FnOnce(&'a mut MessageBuilder<'b>) -> &'a mut MessageBuilder<'b>,
    check: impl FnOnce(&[u8]),
) {
    let mut out = vec![0xFF; 70_000];
    let id = TransactionId(*b"transactions");
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::BINDING, id);
    write(&mut builder);
    // Values of nearly 64 KiB leave no room for the header of their attribute.
    if let Some(len) = builder.finish() {
        let message = Message::parse(&out[..len]).expect("what we build is well formed");
        check(message.attributes().next().expect("one was written").value);
    }
}

fn block_again(block: AccessTokenBlock<'_>, bytes: &[u8]) {
    let mut out = vec![0; bytes.len()];
    assert_eq!(block.write(&mut out), Some(bytes.len()));
    assert_eq!(out, bytes);
}
