//! RFC 8656 §18: the attributes of TURN.

use stun_wire::{
    ChannelNumber, Class, Icmp, MessageBuilder, Method, TransactionId, ValueError, reason_phrase,
    value,
};

use crate::common;
use crate::common::attribute;

fn built(write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = vec![0xFF; 1500];
    let id = TransactionId(common::ID);
    let mut builder = MessageBuilder::new(&mut out, Class::Request, Method::ALLOCATE, id);
    write(&mut builder);
    let len = builder.finish().expect("it fits");
    out[20..len].to_vec()
}

/// Asserts that every other length is malformed.
fn only_length<T>(len: usize, read: impl Fn(&[u8]) -> Result<T, ValueError>) {
    for other in (0..40).filter(|&other| other != len) {
        let result = read(&vec![0; other]);
        assert!(matches!(result, Err(ValueError::Length)), "{other} bytes");
    }
    assert!(read(&vec![0; len]).is_ok());
}

/// 8656-18.1-01: the last two bytes are zero when sent, ignored when received.
#[test]
fn channel_number() {
    let written = built(|builder| {
        builder.channel_number(ChannelNumber::MAX);
    });
    assert_eq!(written, attribute(0x000C, &[0x4F, 0xFF, 0, 0]));
    assert_eq!(value::channel_number(&[0x40, 0, 0xFF, 0xFF]), Ok(0x4000));
    assert_eq!(value::channel_number(&[0xFF, 0xFF, 0, 0]), Ok(0xFFFF), "judged elsewhere");
    only_length(4, value::channel_number);
}

/// 8656-18.2-01
#[test]
fn lifetime() {
    let written = built(|builder| {
        builder.lifetime(3600);
    });
    assert_eq!(written, attribute(0x000D, &[0, 0, 0x0E, 0x10]));
    assert_eq!(value::lifetime(&[0xFF; 4]), Ok(u32::MAX));
    only_length(4, value::lifetime);
}

/// 8656-18.3-01: obfuscated like XOR-MAPPED-ADDRESS.
#[test]
fn xor_peer_and_relayed_address() {
    let addr = "192.0.2.1:32853".parse().unwrap();
    let written = built(|builder| {
        builder.xor_address(stun_wire::AttributeType::XOR_PEER_ADDRESS, addr);
        builder.xor_address(stun_wire::AttributeType::XOR_RELAYED_ADDRESS, addr);
    });
    let value = [0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
    assert_eq!(written, [attribute(0x0012, &value), attribute(0x0016, &value)].concat());
    assert_eq!(value::xor_address(&value, TransactionId(common::ID)), Ok(addr));
}

/// 8656-18.4-01
#[test]
fn data() {
    for len in 0..=5 {
        let written = built(|builder| {
            builder.data(&vec![9; len]);
        });
        assert_eq!(written, attribute(0x0013, &vec![9; len]));
    }
}

/// 8656-18.6-01, 8656-18.11-01: the family first, 24 bits ignored.
#[test]
fn address_families() {
    let written = built(|builder| {
        builder.requested_address_family(1).additional_address_family(2);
    });
    let expected = [attribute(0x0017, &[1, 0, 0, 0]), attribute(0x8000, &[2, 0, 0, 0])];
    assert_eq!(written, expected.concat());
    assert_eq!(value::address_family(&[1, 0xFF, 0xFF, 0xFF]), Ok(1));
    assert_eq!(value::address_family(&[7, 0, 0, 0]), Ok(7), "judged elsewhere");
    only_length(4, value::address_family);
}

/// 8656-18.7-01: the top bit; the other bits are ignored.
#[test]
fn even_port() {
    for (reserve, byte) in [(true, 0x80), (false, 0x00)] {
        let written = built(|builder| {
            builder.even_port(reserve);
        });
        assert_eq!(written, attribute(0x0018, &[byte]));
        assert_eq!(value::even_port(&[byte]), Ok(reserve));
        assert_eq!(value::even_port(&[byte | 0x7F]), Ok(reserve));
    }
    only_length(1, value::even_port);
}

/// 8656-18.8-01: the protocol first, 24 bits ignored.
#[test]
fn requested_transport() {
    let written = built(|builder| {
        builder.requested_transport(17);
    });
    assert_eq!(written, attribute(0x0019, &[17, 0, 0, 0]));
    assert_eq!(value::requested_transport(&[17, 0xFF, 0xFF, 0xFF]), Ok(17));
    only_length(4, value::requested_transport);
}

/// 8656-18.9-01: no value.
#[test]
fn dont_fragment() {
    let written = built(|builder| {
        builder.dont_fragment();
    });
    assert_eq!(written, attribute(0x001A, &[]));
    only_length(0, value::dont_fragment);
}

/// 8656-18.10-01
#[test]
fn reservation_token() {
    let written = built(|builder| {
        builder.reservation_token(*b"12345678");
    });
    assert_eq!(written, attribute(0x0022, b"12345678"));
    assert_eq!(value::reservation_token(b"12345678"), Ok(*b"12345678"));
    only_length(8, value::reservation_token);
}

/// 8656-18.12-01: family in byte 0, 13 bits zero when sent and ignored when received.
#[test]
fn address_error_code() {
    let written = built(|builder| {
        builder.address_error_code(2, 440, reason_phrase(440));
    });
    assert_eq!(written, attribute(0x8001, b"\x02\x00\x04\x28Address Family not Supported"));
    assert_eq!(value::address_error_code(b"\x01\xFF\xFD\x08full"), Ok((1, 508, "full")));
    assert_eq!(value::address_error_code(b"\x01\0\0\0"), Err(ValueError::ErrorCode));
    assert_eq!(value::address_error_code(b"\x01\0\x05"), Err(ValueError::Length));
}

/// 8656-18.13-01: type 3 code 3 is 06 03. 8656-18.13-02: the MTU of the next hop.
#[test]
fn icmp() {
    let port_unreachable = Icmp { kind: 3, code: 3, data: 0 };
    let too_big = Icmp { kind: 3, code: 4, data: 1400 };
    let v6_too_big = Icmp { kind: 2, code: 0, data: 1280 };
    for (icmp, bytes) in [
        (port_unreachable, [0, 0, 0x06, 0x03, 0, 0, 0, 0]),
        (too_big, [0, 0, 0x06, 0x04, 0, 0, 0x05, 0x78]),
        (v6_too_big, [0, 0, 0x04, 0x00, 0, 0, 0x05, 0x00]),
        (Icmp { kind: 127, code: 511, data: u32::MAX }, [0, 0, 0xFF, 0xFF, 255, 255, 255, 255]),
    ] {
        let written = built(|builder| {
            builder.icmp(icmp);
        });
        assert_eq!(written, attribute(0x8004, &bytes));
        assert_eq!(value::icmp(&bytes), Ok(icmp));
    }
    assert_eq!(value::icmp(&[0xFF, 0xFF, 0x06, 0x03, 0, 0, 0, 0]), Ok(port_unreachable));
    only_length(8, value::icmp);
}
