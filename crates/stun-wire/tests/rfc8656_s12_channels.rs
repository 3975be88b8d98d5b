//! RFC 8656 §12: channel numbers and the ChannelData format; §11.3: the head of a Data indication.

use stun_wire::{
    AttributeType, ChannelData, ChannelNumber, Class, DATA_HEADER_LEN_MAX, Message, Method,
    PacketKind, ParseError, TransactionId, channel_data, channel_data_rfc5766, classify,
    classify_rfc5766, value, write_channel_header, write_data_header,
};

use crate::common;

/// 8656-12-01: 0x4000 to 0x4FFF.
#[test]
fn channel_numbers() {
    for number in 0..=u16::MAX {
        let channel = ChannelNumber::new(number);
        assert_eq!(channel.is_some(), (0x4000..=0x4FFF).contains(&number), "0x{number:04X}");
        assert!(channel.is_none_or(|channel| channel.get() == number));
    }
}

/// 8656-12.4-01: number, length of the data, data.
#[test]
fn channel_data_is_read() {
    let bytes = [0x40, 0x01, 0x00, 0x03, 1, 2, 3];
    let read = channel_data(&bytes);
    assert_eq!(read, Ok(ChannelData { number: 0x4001, data: &[1, 2, 3] }));
    let empty = channel_data(&[0x4F, 0xFF, 0, 0]);
    assert_eq!(empty, Ok(ChannelData { number: 0x4FFF, data: &[] }));
}

/// 8656-12.5-04: padding over UDP is accepted, and excluded from the data.
#[test]
fn padding_is_not_data() {
    for padding in [&[0][..], &[0xFF; 3], &[0; 100]] {
        let bytes = [&[0x40, 0x01, 0x00, 0x03, 1, 2, 3], padding].concat();
        assert_eq!(channel_data(&bytes).unwrap().data, [1, 2, 3]);
    }
}

/// 8656-12.6-01, 8656-12.6-02: other numbers, and less data than announced.
#[test]
fn malformed_channel_data_is_refused() {
    for first in (0..=0x3F).chain(0x50..=0xFF) {
        let bytes = [first, 0, 0, 0];
        assert_eq!(channel_data(&bytes), Err(ParseError::NotChannelData), "0x{first:02X}");
    }
    for len in 0..4 {
        assert_eq!(channel_data(&[0x40; 4][..len]), Err(ParseError::TooShort));
    }
    assert_eq!(channel_data(&[0x40, 0, 0, 50, 1, 2, 3, 4, 5]), Err(ParseError::LengthMismatch));
    assert_eq!(channel_data(&[0x40, 0, 0xFF, 0xFF]), Err(ParseError::LengthMismatch));
}

#[test]
fn written_header_is_read_back() {
    for (number, len) in [(0x4000, 0), (0x4ABC, 1), (0x4FFF, 1200), (0x4000, u16::MAX)] {
        let mut bytes = vec![0; 4 + usize::from(len)];
        let (head, _) = bytes.split_first_chunk_mut().unwrap();
        write_channel_header(head, ChannelNumber::new(number).unwrap(), len);
        let read = channel_data(&bytes).unwrap();
        assert_eq!((read.number, read.data.len()), (number, usize::from(len)));
    }
}

/// 8656-11.3-01: XOR-PEER-ADDRESS with address and port, and DATA, for any length of the payload.
#[test]
fn data_indication_around_a_payload() {
    let id = TransactionId(common::ID);
    for (peer, head_len) in [("192.0.2.9:4444", 36), ("[2001:db8::9]:4444", 48)] {
        let peer = peer.parse().unwrap();
        for payload_len in [0, 1, 2, 3, 4, 5, 1400, 65480, 65500] {
            let mut head = [0xFF; DATA_HEADER_LEN_MAX];
            let written = write_data_header(&mut head, id, peer, payload_len);
            let fits = head_len + payload_len.next_multiple_of(4) <= stun_wire::MESSAGE_LEN_MAX;
            assert_eq!(written, fits.then_some(head_len), "{peer} {payload_len}");
            if !fits {
                continue;
            }
            let mut bytes = head[..head_len].to_vec();
            bytes.resize(head_len + payload_len, 0x77);
            bytes.resize(bytes.len().next_multiple_of(4), 0);

            let message = Message::parse(&bytes).unwrap();
            assert_eq!((message.class(), message.method()), (Class::Indication, Method::DATA));
            assert_eq!(message.transaction_id(), id);
            let from = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
            assert_eq!(value::xor_address(from, id), Ok(peer));
            let data = message.first(AttributeType::DATA).unwrap();
            assert_eq!(data, vec![0x77; payload_len]);
        }
    }
}

/// 8656-11.3-03: a payload too long for a STUN message has no header.
#[test]
fn too_large_a_payload_has_no_head() {
    let (id, peer) = (TransactionId(common::ID), "192.0.2.9:4444".parse().unwrap());
    let mut head = [0; DATA_HEADER_LEN_MAX];
    let longest = stun_wire::MESSAGE_LEN_MAX - 36;
    assert!(write_data_header(&mut head, id, peer, longest).is_some());
    for payload_len in [longest + 1, 65535, 65536, usize::MAX] {
        assert_eq!(write_data_header(&mut head, id, peer, payload_len), None);
    }
}

/// RFC 5766 §11: clients choose from 0x4000 to 0x7FFE, those of coturn up to 0x7FFF. The wider
/// range is available only on request.
#[test]
fn channels_of_rfc5766() {
    for number in 0..=u16::MAX {
        let channel = ChannelNumber::new_rfc5766(number);
        assert_eq!(channel.is_some(), (0x4000..=0x7FFF).contains(&number), "0x{number:04X}");

        let [n0, n1] = number.to_be_bytes();
        let bytes = [n0, n1, 0, 1, 7];
        let read = channel_data_rfc5766(&bytes);
        let expected = channel.map(|_| ChannelData { number, data: &[7] });
        assert_eq!(read, expected.ok_or(ParseError::NotChannelData));
        if channel.is_some() {
            assert_eq!(classify_rfc5766(&bytes), PacketKind::ChannelData);
        }
    }
    for first in (0..=79).chain(128..=255) {
        assert_eq!(classify_rfc5766(&[first]), classify(&[first]));
    }
}
