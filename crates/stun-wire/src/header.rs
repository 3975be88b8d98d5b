//! The 20-byte header of a STUN message (RFC 8489 §5): type, length, cookie, transaction id.

use crate::error::ParseError;
use core::fmt;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 20;

/// Bytes 4..8 of every message since RFC 5389.
pub const MAGIC_COOKIE: u32 = 0x2112_A442;

/// Maximum length of a message in bytes: the 16-bit length field is a multiple of four.
pub const MESSAGE_LEN_MAX: usize = HEADER_LEN + 65532;

/// Rounds `len` up to a multiple of four bytes, the padding of attributes, and of ChannelData on a
/// stream. `len` must be at most the maximum of a 16-bit length field, plus a header.
#[must_use]
pub const fn padded_len(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Class of a message: request, indication, success or error (RFC 8489 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Request, which requires a response (0b00).
    Request,
    /// Indication, which gets no response (0b01).
    Indication,
    /// Response to a granted request (0b10).
    Success,
    /// Response to a refused request (0b11).
    Error,
}

/// 12-bit method number. Numbers without a name are retained unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(u16);

impl Method {
    /// Binding (RFC 8489 §18.2).
    pub const BINDING: Self = Self(0x001);
    /// SharedSecret, only in RFC 3489.
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

    /// Creates a method from a number, or returns `None` above 0xFFF.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number <= 0xFFF { Some(Self(number)) } else { None }
    }

    /// Returns the method number, 0..=0xFFF.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the RFC's name of the method, or `None` for a method without a name here.
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

/// Transaction id that matches a response to a request: 96 bits, random in ids of this server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionId(pub [u8; 12]);

/// Encodes the 14-bit message type: the method, with the class bits at positions 4 and 8 (RFC 8489
/// §5).
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

/// Decodes a message type. Inverse of [`join_type`]; the two top bits are ignored.
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

/// Performs the checks that RFC 3489 and RFC 8489 share, except the length. Returns the attributes.
pub(crate) fn check_header(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let attributes = bytes.get(HEADER_LEN..).ok_or(ParseError::TooShort)?;
    match bytes.first() {
        Some(0x00..=0x3F) => Ok(attributes),
        Some(_) | None => Err(ParseError::NotStun),
    }
}

/// Checks the length field: a multiple of four, and exactly the number of bytes after the header.
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
