//! 8489-6.2.2-01, 8656-12.5-03: messages follow each other on a stream without extra framing.

use stun_wire::{Cut, MESSAGE_LEN_MAX, Message, channel_data, next_message};

use crate::common::vectors::WELL_FORMED;
use crate::common::{attribute, message};

/// Splits a stream that is received in pieces of `step` bytes.
fn cut_all(stream: &[u8], step: usize) -> Vec<Vec<u8>> {
    let (mut buffer, mut messages) = (Vec::new(), Vec::new());
    for piece in stream.chunks(step) {
        buffer.extend_from_slice(piece);
        while let Cut::Message { len, padded_len } = next_message(&buffer) {
            messages.push(buffer[..len].to_vec());
            buffer.drain(..padded_len);
        }
        let Cut::NeedMore { at_least } = next_message(&buffer) else {
            panic!("garbage in {buffer:?}");
        };
        assert!(at_least > buffer.len(), "asking for what is there already");
    }
    assert!(buffer.is_empty());
    messages
}

#[test]
fn any_pieces_give_the_same_messages() {
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    for (index, vector) in WELL_FORMED.iter().enumerate() {
        stream.extend_from_slice(vector);
        expected.push(vector.to_vec());
        // ChannelData of 0, 1, 2, ... bytes, padded, between them.
        let data = vec![0xEE; index];
        let frame = [&[0x40, 0x00, 0x00, index as u8][..], &data].concat();
        stream.extend_from_slice(&frame);
        stream.resize(stream.len().next_multiple_of(4), 0);
        expected.push(frame);
    }
    for step in [1, 2, 3, 5, 7, 20, 64, stream.len()] {
        assert_eq!(cut_all(&stream, step), expected, "pieces of {step}");
    }
}

#[test]
fn what_is_cut_can_be_parsed() {
    for vector in WELL_FORMED {
        let stream = [vector, &[0x40, 0, 0, 0][..]].concat();
        let Cut::Message { len, padded_len } = next_message(&stream) else {
            panic!("a whole message is there");
        };
        assert_eq!(len, padded_len);
        assert!(Message::parse(&stream[..len]).is_ok());
    }
    let frame = [0x4F, 0xFF, 0, 1, 0xEE, 0, 0, 0];
    assert_eq!(next_message(&frame), Cut::Message { len: 5, padded_len: 8 });
    assert_eq!(channel_data(&frame[..5]).unwrap().data, [0xEE]);
}

#[test]
fn how_much_is_missing() {
    assert_eq!(next_message(&[]), Cut::NeedMore { at_least: 4 });
    assert_eq!(next_message(&[0x00]), Cut::NeedMore { at_least: 20 });
    assert_eq!(next_message(&[0x40]), Cut::NeedMore { at_least: 4 });
    let bytes = message(0x0001, &attribute(0x8022, b"name"));
    for len in 4..bytes.len() {
        assert_eq!(next_message(&bytes[..len]), Cut::NeedMore { at_least: 28 });
    }
    // The padding is required, or it would be interpreted as the start of the next message.
    assert_eq!(next_message(&[0x40, 0, 0, 1, 7]), Cut::NeedMore { at_least: 8 });
}

/// The maximum lengths that a stream can make the server wait for.
#[test]
fn the_longest_of_each() {
    let stun = [0x00, 0x16, 0xFF, 0xFC];
    assert_eq!(next_message(&stun), Cut::NeedMore { at_least: MESSAGE_LEN_MAX });
    let channel = [0x40, 0x00, 0xFF, 0xFF];
    assert_eq!(next_message(&channel), Cut::NeedMore { at_least: 65540 });
}

/// 8656-12.6-01: on a stream, the framing is lost.
#[test]
fn other_protocols_are_noticed_at_once() {
    for first in (4..=0x3F).chain(0x50..=0xFF) {
        assert_eq!(next_message(&[first]), Cut::Garbage, "0x{first:02X}");
    }
    // A length that is not a multiple of four, and a cookie with a wrong first byte.
    assert_eq!(next_message(&[0x00, 0x01, 0x00, 0x02]), Cut::Garbage);
    assert_eq!(next_message(&[0x00, 0x01, 0x00, 0x00, 0x22]), Cut::Garbage);
    assert_eq!(next_message(&[0x00, 0x01, 0x00, 0x00, 0x21, 0x12, 0xA4, 0x43]), Cut::Garbage);
}

/// HTTP looks like ChannelData on channel 0x4745. The caller knows that no such channel is bound,
/// and must close the connection.
#[test]
fn http_looks_like_channel_data() {
    assert_eq!(next_message(b"GET / HTTP/1.1"), Cut::NeedMore { at_least: 4 + 0x5420 });
}
