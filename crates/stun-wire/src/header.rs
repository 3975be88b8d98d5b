//! The 20-byte header of a STUN message (RFC 8489 §5): type, length, cookie, transaction id.

use crate::error::ParseError;
use core::fmt;

/// Bytes of the header.
pub const HEADER_LEN: usize = 20;

/// Bytes 4..8 of every message since RFC 5389.
pub const MAGIC_COOKIE: u32 = 0x2112_A442;

/// The longest message: the length field is a multiple of four in 16 bits.
pub const MESSAGE_LEN_MAX: usize = HEADER_LEN + 65532;

/// `len` rounded up to the four bytes to which attributes, and ChannelData on a stream, are padded.
/// `len` is at most the maximum of a 16-bit length field, plus a header.
#[must_use]
pub const fn padded_len(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Class of a message: request, indication, success or error (RFC 8489 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Asks for an answer (0b00).
    Request,
    /// Tells, and gets no answer (0b01).
    Indication,
    /// Answers a request that was granted (0b10).
    Success,
    /// Answers a request that was refused (0b11).
    Error,
}

/// A 12-bit method number; numbers without a name are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(u16);

impl Method {
    /// Binding (RFC 8489 §18.2).
    pub const BINDING: Self = Self(0x001);
    /// SharedSecret, of RFC 3489 only.
    pub const SHARED_SECRET: Self = Self(0x002);
    /// Allocate (RFC 8656 §17).
    pub const ALLOCATE: Self = Self(0x003);
    /// Refresh (RFC 8656 §17).
    pub const REFRESH: Self = Self(0x004);
    /// Send, an indication (RFC 8656 §17).
    pub const SEND: Self = Self(0x006);
    /// Data, an indication (RFC 8656 §17).
    pub const DATA: Self = Self(0x007);
    /// CreatePermission (RFC 8656 §17).
    pub const CREATE_PERMISSION: Self = Self(0x008);
    /// ChannelBind (RFC 8656 §17).
    pub const CHANNEL_BIND: Self = Self(0x009);
    /// Connect (RFC 6062 §6.1).
    pub const CONNECT: Self = Self(0x00A);
    /// ConnectionBind (RFC 6062 §6.1).
    pub const CONNECTION_BIND: Self = Self(0x00B);
    /// ConnectionAttempt, an indication (RFC 6062 §6.1).
    pub const CONNECTION_ATTEMPT: Self = Self(0x00C);

    /// The method with this number, 0..=0xFFF.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number <= 0xFFF { Some(Self(number)) } else { None }
    }

    /// Its number, 0..=0xFFF.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The RFC's name of it, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::BINDING => "Binding",
            Self::SHARED_SECRET => "SharedSecret",
            Self::ALLOCATE => "Allocate",
            Self::REFRESH => "Refresh",
            Self::SEND => "Send",
            Self::DATA => "Data",
            Self::CREATE_PERMISSION => "CreatePermission",
            Self::CHANNEL_BIND => "ChannelBind",
            Self::CONNECT => "Connect",
            Self::CONNECTION_BIND => "ConnectionBind",
            Self::CONNECTION_ATTEMPT => "ConnectionAttempt",
            _ => return None,
        })
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Method(0x{:03X})", self.0),
        }
    }
}

/// Which request an answer belongs to: 96 bits, random where we make them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionId(pub [u8; 12]);

/// The 14-bit message type: the method with the class bits in between, at 4 and 8 (RFC 8489 §5).
pub(crate) const fn join_type(class: Class, method: Method) -> u16 {
    let class = match class {
        Class::Request => 0x0000,
        Class::Indication => 0x0010,
        Class::Success => 0x0100,
        Class::Error => 0x0110,
    };
    let m = method.0;
    class | (m & 0x000F) | ((m & 0x0070) << 1) | ((m & 0x0F80) << 2)
}

/// The opposite of [`join_type`]; the two top bits are ignored.
pub(crate) const fn split_type(message_type: u16) -> (Class, Method) {
    let class = match message_type & 0x0110 {
        0x0000 => Class::Request,
        0x0010 => Class::Indication,
        0x0100 => Class::Success,
        _ => Class::Error,
    };
    let t = message_type;
    let method = (t & 0x000F) | ((t >> 1) & 0x0070) | ((t >> 2) & 0x0F80);
    (class, Method(method))
}

/// The checks that RFC 3489 and RFC 8489 share, but for the length; returns the attributes.
pub(crate) fn check_header(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let attributes = bytes.get(HEADER_LEN..).ok_or(ParseError::TooShort)?;
    match bytes.first() {
        Some(0x00..=0x3F) => Ok(attributes),
        Some(_) | None => Err(ParseError::NotStun),
    }
}

/// The length field: a multiple of four, and exactly the bytes behind the header.
pub(crate) fn check_length(bytes: &[u8]) -> Result<(), ParseError> {
    let &[_, _, l0, l1, ..] = bytes else {
        return Err(ParseError::TooShort);
    };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if !len.is_multiple_of(4) {
        return Err(ParseError::LengthNotMultipleOfFour);
    }
    if HEADER_LEN + len != bytes.len() {
        return Err(ParseError::LengthMismatch);
    }
    Ok(())
}

pub(crate) fn message_type(bytes: &[u8]) -> (Class, Method) {
    let word = bytes.first_chunk::<2>().copied().unwrap_or_default();
    split_type(u16::from_be_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::{Class, Method, join_type, split_type};

    #[test]
    fn every_type_survives_the_split() {
        for message_type in 0..0x4000 {
            let (class, method) = split_type(message_type);
            assert_eq!(join_type(class, method), message_type);
        }
    }

    #[test]
    fn types_of_the_rfc() {
        assert_eq!(join_type(Class::Success, Method::BINDING), 0x0101);
        assert_eq!(join_type(Class::Success, Method::ALLOCATE), 0x0103);
        assert_eq!(join_type(Class::Error, Method::ALLOCATE), 0x0113);
        assert_eq!(join_type(Class::Indication, Method::SEND), 0x0016);
        assert_eq!(join_type(Class::Indication, Method::DATA), 0x0017);
        assert_eq!(join_type(Class::Request, Method(0xFFF)), 0x3EEF);
    }
}
