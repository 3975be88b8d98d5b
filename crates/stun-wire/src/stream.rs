//! Splitting of a byte stream into messages (RFC 8489 §6.2.2, RFC 8656 §12.5). TCP and TLS provide
//! no framing, so the length fields delimit messages.

use crate::channel::CHANNEL_HEADER_LEN;
use crate::header::{HEADER_LEN, MAGIC_COOKIE, padded_len};
use crate::packet::{PacketKind, classify, classify_rfc5766};

/// Result of checking the first bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The message is incomplete. At most [`MESSAGE_LEN_MAX`](crate::MESSAGE_LEN_MAX) or, for
    /// ChannelData, 65540 bytes are required.
    NeedMore {
        /// Number of bytes, from the same start, that are required before the next check.
        at_least: usize,
    },
    /// The first message is complete.
    Message {
        /// Length of the message in bytes, for the parser.
        len: usize,
        /// Number of bytes to remove from the stream: `len` and the padding of ChannelData.
        padded_len: usize,
    },
    /// The bytes are neither STUN nor ChannelData. The start of the next message cannot be
    /// determined, so the connection is unusable.
    Garbage,
}

/// Finds the first message of the bytes received so far, without parsing the message.
#[must_use]
pub fn next_message(bytes: &[u8]) -> Cut {
    next(bytes, classify(bytes))
}

/// Finds the first message as [`next_message`], for a server with clients of RFC 5766. Their
/// channels use first bytes up to 127.
#[must_use]
pub fn next_message_rfc5766(bytes: &[u8]) -> Cut {
    next(bytes, classify_rfc5766(bytes))
}

fn next(bytes: &[u8], kind: PacketKind) -> Cut {
    match kind {
        PacketKind::Other if bytes.is_empty() => Cut::NeedMore { at_least: CHANNEL_HEADER_LEN },
        PacketKind::Stun => next_stun(bytes),
        PacketKind::ChannelData => next_channel_data(bytes),
        PacketKind::Dtls | PacketKind::Other => Cut::Garbage,
    }
}

fn next_stun(bytes: &[u8]) -> Cut {
    let Some(len) = length_field(bytes) else {
        return Cut::NeedMore { at_least: HEADER_LEN };
    };
    // Checks as early as the bytes allow, without a wait for further bytes from clients with
    // another protocol.
    let cookie = bytes.get(4..).unwrap_or_default();
    let wrong = cookie.iter().zip(MAGIC_COOKIE.to_be_bytes()).any(|(&byte, right)| byte != right);
    if wrong || !len.is_multiple_of(4) {
        return Cut::Garbage;
    }
    cut(bytes, HEADER_LEN + len, HEADER_LEN + len)
}

fn next_channel_data(bytes: &[u8]) -> Cut {
    let Some(len) = length_field(bytes) else {
        return Cut::NeedMore { at_least: CHANNEL_HEADER_LEN };
    };
    let len = CHANNEL_HEADER_LEN + len;
    cut(bytes, len, padded_len(len))
}

fn cut(bytes: &[u8], len: usize, padded_len: usize) -> Cut {
    if bytes.len() < padded_len {
        Cut::NeedMore { at_least: padded_len }
    } else {
        Cut::Message { len, padded_len }
    }
}

/// Returns the length field, which both formats have in bytes 2 and 3.
fn length_field(bytes: &[u8]) -> Option<usize> {
    let &[_, _, l0, l1] = bytes.first_chunk::<4>()?;
    Some(usize::from(u16::from_be_bytes([l0, l1])))
}
