//! Errors in received bytes, which are always the sender's fault. Each broken rule has a variant.

use core::fmt;

/// Reason why bytes are not a valid message. None of these errors gets a response (RFC 8489 §6.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// The bytes are shorter than the header.
    TooShort,
    /// The first two bits are not zero (RFC 8489 §5).
    NotStun,
    /// Bytes 4..8 are not the magic cookie: a message of RFC 3489, or noise.
    BadCookie,
    /// The length field is not a multiple of four (RFC 8489 §5).
    LengthNotMultipleOfFour,
    /// The length field does not match the number of bytes.
    LengthMismatch,
    /// An attribute exceeds the message (RFC 8489 §14).
    AttributeOverrun,
    /// The message has more than [`ATTRIBUTES_MAX`](crate::ATTRIBUTES_MAX) attributes.
    TooManyAttributes,
    /// FINGERPRINT is not last, not four bytes, or wrong (RFC 8489 §14.7).
    Fingerprint,
    /// The first byte does not belong to a channel number (RFC 8656 §12).
    NotChannelData,
}

impl ParseError {
    /// Returns a short name for a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::NotStun => "not_stun",
            Self::BadCookie => "bad_cookie",
            Self::LengthNotMultipleOfFour => "length_not_multiple_of_four",
            Self::LengthMismatch => "length_mismatch",
            Self::AttributeOverrun => "attribute_overrun",
            Self::TooManyAttributes => "too_many_attributes",
            Self::Fingerprint => "fingerprint",
            Self::NotChannelData => "not_channel_data",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "shorter than its header",
            Self::NotStun => "not a STUN message",
            Self::BadCookie => "no magic cookie",
            Self::LengthNotMultipleOfFour => "length field is no multiple of four",
            Self::LengthMismatch => "length field does not fit the bytes",
            Self::AttributeOverrun => "attribute runs past the end of the message",
            Self::TooManyAttributes => "too many attributes",
            Self::Fingerprint => "FINGERPRINT is wrong or misplaced",
            Self::NotChannelData => "not a ChannelData message",
        })
    }
}

impl core::error::Error for ParseError {}

/// Reason why the value of an attribute is malformed. A request with such a value usually gets a
/// 400.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueError {
    /// The value is too short, too long, or does not have the required length.
    Length,
    /// The family of an address is neither 1 (IPv4) nor 2 (IPv6).
    AddressFamily,
    /// The text is not UTF-8.
    Utf8,
    /// The error class is outside 3..=6, or the number is outside 0..=99 (RFC 8489 §14.8).
    ErrorCode,
    /// A password algorithm without parameters has parameters (RFC 8489 §18.5).
    AlgorithmParameters,
    /// The domain name contains bytes that are not ASCII (RFC 8489 §14.16).
    DomainName,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "wrong length",
            Self::AddressFamily => "unknown address family",
            Self::Utf8 => "not UTF-8",
            Self::ErrorCode => "error code out of range",
            Self::AlgorithmParameters => "parameters for an algorithm without any",
            Self::DomainName => "domain name is not ASCII",
        })
    }
}

impl core::error::Error for ValueError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    /// The names are part of metric series: another name would be another series.
    #[test]
    fn names_are_stable_and_errors_are_told() {
        for (error, name) in [
            (ParseError::TooShort, "too_short"),
            (ParseError::NotStun, "not_stun"),
            (ParseError::BadCookie, "bad_cookie"),
            (ParseError::LengthNotMultipleOfFour, "length_not_multiple_of_four"),
            (ParseError::LengthMismatch, "length_mismatch"),
            (ParseError::AttributeOverrun, "attribute_overrun"),
            (ParseError::TooManyAttributes, "too_many_attributes"),
            (ParseError::Fingerprint, "fingerprint"),
            (ParseError::NotChannelData, "not_channel_data"),
        ] {
            assert_eq!(error.name(), name);
            assert!(!error.to_string().is_empty());
        }
        assert_eq!(ValueError::Utf8.to_string(), "not UTF-8");
    }
}
