//! Data to and from peers (RFC 8656 §§11, 12).

use crate::support::{addr, at, client_with_allocation, config, peer, sent, serve, success};
use stun_wire::{
    AttributeType, ChannelNumber, Class, Icmp, Message, MessageBuilder, Method, TransactionId,
    value,
};
use turn_client::{Client, ClientConfig, IgnoreReason, Incoming};
use turn_types::Transport;

fn indication(method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = [0; 1500];
    let id = TransactionId([3; 12]);
    let mut builder = MessageBuilder::new(&mut out, Class::Indication, method, id);
    write(&mut builder);
    let len = builder.finish().unwrap();
    out[..len].to_vec()
}

#[test]
fn reads_data_indications_of_peers_it_asked_for() {
    let mut client = client_with_allocation();
    client.permit(at(0.0), [192, 0, 2, 50].into()).unwrap();
    let from = |address: &str, payload: &[u8]| {
        indication(Method::DATA, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(address));
            builder.data(payload);
        })
    };
    for payload in [&b""[..], b"a", b"four", b"hello"] {
        // Even before the permission is confirmed: the response may arrive after the data.
        let datagram = from("192.0.2.50:7", payload);
        let expected = Incoming::Data { peer: peer("192.0.2.50:7"), payload, channel: None };
        assert_eq!(client.handle_datagram(at(0.1), &datagram), expected);
    }
    let stranger = from("192.0.2.51:7", b"hello");
    let incoming = client.handle_datagram(at(0.1), &stranger);
    assert_eq!(incoming, Incoming::Ignored(IgnoreReason::NoPermission));
}

#[test]
fn reads_icmp_reports_and_refuses_ambiguous_indications() {
    let mut client = client_with_allocation();
    client.permit(at(0.0), [192, 0, 2, 50].into()).unwrap();
    let icmp = Icmp { kind: 3, code: 3, data: 0 };
    let report = indication(Method::DATA, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.50:7"));
        builder.icmp(icmp);
    });
    let incoming = client.handle_datagram(at(0.1), &report);
    assert_eq!(incoming, Incoming::Icmp { peer: peer("192.0.2.50:7"), icmp });

    let malformed = [
        indication(Method::DATA, |builder| {
            builder.data(b"from nobody");
        }),
        indication(Method::DATA, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.50:7"));
        }),
        indication(Method::DATA, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.50:7"));
            builder.data(b"both").icmp(icmp);
        }),
        indication(Method::DATA, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.50:7"));
            builder.data(b"unknown").attribute(AttributeType(0x7E05), b"");
        }),
    ];
    for datagram in malformed {
        let incoming = client.handle_datagram(at(0.1), &datagram);
        assert_eq!(incoming, Incoming::Ignored(IgnoreReason::Malformed));
    }
    let send = indication(Method::SEND, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.50:7"));
        builder.data(b"servers do not send this");
    });
    let incoming = client.handle_datagram(at(0.1), &send);
    assert_eq!(incoming, Incoming::Ignored(IgnoreReason::Unexpected));
}

#[test]
fn reads_channel_data_and_ignores_padding() {
    let mut client = client_with_allocation();
    let channel = client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(0.1), &success(&request));
    let expected =
        Incoming::Data { peer: peer("192.0.2.60:9000"), payload: b"hello", channel: Some(channel) };
    let padded = b"\x40\x00\x00\x05hello\0\0\0";
    assert_eq!(client.handle_datagram(at(0.2), &padded[..9]), expected);
    assert_eq!(client.handle_datagram(at(0.2), padded), expected);
    for (datagram, reason) in [
        (&padded[..8], IgnoreReason::Malformed),
        (b"\x40\x01\x00\x00", IgnoreReason::UnknownChannel),
        (b"\x4F\xFF\x00\x00", IgnoreReason::UnknownChannel),
        (b"\x80\x00\x00\x00", IgnoreReason::NotStun),
        (b"", IgnoreReason::NotStun),
        (b"\x01\x01\x00\x00", IgnoreReason::Malformed),
    ] {
        let incoming = client.handle_datagram(at(0.2), datagram);
        assert_eq!(incoming, Incoming::Ignored(reason), "{datagram:02x?}");
    }
}

#[test]
fn writes_channel_data_into_the_buffer_of_the_caller() {
    let channel = ChannelNumber::new(0x4001).unwrap();
    let client = Client::new(config());
    let mut out = [0xEE; 12];
    assert_eq!(client.write_channel_data(&mut out, channel, b"hello"), Some(9));
    assert_eq!(&out, b"\x40\x01\x00\x05hello\xEE\xEE\xEE");
    assert_eq!(client.write_channel_data(&mut out[..9], channel, b"hello"), Some(9));
    assert_eq!(client.write_channel_data(&mut out[..8], channel, b"hello"), None);
    assert_eq!(client.write_channel_data(&mut out, channel, b""), Some(4));
    let mut large = vec![0; 70_000];
    assert_eq!(client.write_channel_data(&mut large, channel, &[0; 65_536]), None);

    // Streams need the padding (RFC 8656 §12.5).
    let client = Client::new(ClientConfig { transport: Transport::Tls, ..config() });
    let mut out = [0xEE; 12];
    assert_eq!(client.write_channel_data(&mut out, channel, b"hello"), Some(12));
    assert_eq!(&out, b"\x40\x01\x00\x05hello\0\0\0");
    assert_eq!(client.write_channel_data(&mut out[..11], channel, b"hello"), None);
}

#[test]
fn writes_send_indications_into_the_buffer_of_the_caller() {
    let mut client = Client::new(config());
    for (to, dont_fragment, len) in [
        ("192.0.2.50:7", false, 36 + 8),
        ("[2001:db8::5]:7", false, 48 + 8),
        ("192.0.2.50:7", true, 40 + 8),
    ] {
        let mut out = [0; 100];
        let written = client.write_send_indication(&mut out, peer(to), b"hello", dont_fragment);
        assert_eq!(written, Some(len), "{to}");
        let message = Message::parse(&out[..len]).unwrap();
        assert_eq!((message.class(), message.method()), (Class::Indication, Method::SEND));
        assert_eq!(message.first(AttributeType::DATA), Some(&b"hello"[..]));
        assert_eq!(message.first(AttributeType::DONT_FRAGMENT).is_some(), dont_fragment);
        let named = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
        assert_eq!(value::xor_address(named, message.transaction_id()), Ok(addr(to)));
        let short = client.write_send_indication(&mut out[..len - 1], peer(to), b"hello", false);
        assert_eq!(short.is_some(), dont_fragment, "only what does not fit is refused");
    }
}

#[test]
fn data_of_a_forgotten_peer_is_ignored() {
    let mut client = client_with_allocation();
    let channel = client.bind_channel(at(0.0), peer("192.0.2.60:9000")).unwrap();
    serve(&mut client, at(0.0));
    client.forget_channel(at(1.0), channel);
    client.forget_permission(at(1.0), [192, 0, 2, 60].into());
    let incoming = client.handle_datagram(at(1.0), b"\x40\x00\x00\x00");
    assert_eq!(incoming, Incoming::Ignored(IgnoreReason::UnknownChannel));
    assert_eq!(client.poll_timeout(), Some(at(540.0)), "only the allocation is kept");
}
