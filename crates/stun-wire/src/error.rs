//! Errors in received bytes: always the sender's fault; one variant per broken rule.

use core::fmt;

/// Why bytes are not a message. None of these is ever answered (RFC 8489 §6.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Shorter than the header.
    TooShort,
    /// The first two bits are not zero (RFC 8489 §5).
    NotStun,
    /// Bytes 4..8 are not the magic cookie: RFC 3489, or noise.
    BadCookie,
    /// The length field is no multiple of four (RFC 8489 §5).
    LengthNotMultipleOfFour,
    /// The length field says more or less than there is.
    LengthMismatch,
    /// An attribute runs past the end of the message (RFC 8489 §14).
    AttributeOverrun,
    /// More than [`ATTRIBUTES_MAX`](crate::ATTRIBUTES_MAX) attributes.
    TooManyAttributes,
    /// FINGERPRINT is not last, not four bytes, or wrong (RFC 8489 §14.7).
    Fingerprint,
    /// The first byte is not that of a channel number (RFC 8656 §12).
    NotChannelData,
}

impl ParseError {
    /// A short name, fit to be a metric label.
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

/// Why the value of an attribute is malformed. In a request this is usually a 400.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueError {
    /// The value is too short, too long, or not of its one length.
    Length,
    /// The family of an address is neither 1 (IPv4) nor 2 (IPv6).
    AddressFamily,
    /// Text that is not UTF-8.
    Utf8,
    /// An error class outside 3..=6 or a number outside 0..=99 (RFC 8489 §14.8).
    ErrorCode,
    /// Parameters for a password algorithm that has none (RFC 8489 §18.5).
    AlgorithmParameters,
    /// A domain name with bytes that are not ASCII (RFC 8489 §14.16).
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

    /// Series of metrics are named by them: another name is another series.
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
