//! Attributes with text as their value.

use crate::error::ValueError;

/// Maximum length of accepted text in bytes: 127 characters of up to six bytes each, as in RFC
/// 5389, plus one (RFC 8489 §14.3, §14.8).
pub const TEXT_LEN_MAX: usize = 763;

fn text(value: &[u8]) -> Result<&str, ValueError> {
    if value.len() > TEXT_LEN_MAX {
        return Err(ValueError::Length);
    }
    core::str::from_utf8(value).map_err(|_| ValueError::Utf8)
}

/// Parses USERNAME (RFC 8489 §14.3).
///
/// # Errors
/// The value exceeds 763 bytes, or is not UTF-8.
pub fn username(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses REALM (RFC 8489 §14.9).
///
/// # Errors
/// The value exceeds 763 bytes, or is not UTF-8.
pub fn realm(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses NONCE (RFC 8489 §14.10).
///
/// # Errors
/// The value exceeds 763 bytes, or is not UTF-8.
pub fn nonce(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses SOFTWARE (RFC 8489 §14.14).
///
/// # Errors
/// The value exceeds 763 bytes, or is not UTF-8.
pub fn software(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses the reason phrase at the end of ERROR-CODE and ADDRESS-ERROR-CODE.
pub(super) fn reason(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses THIRD-PARTY-AUTHORIZATION (RFC 7635 §6.1): the server's name.
///
/// # Errors
/// The value exceeds 763 bytes, or is not UTF-8.
pub fn third_party_authorization(value: &[u8]) -> Result<&str, ValueError> {
    text(value)
}

/// Parses ALTERNATE-DOMAIN (RFC 8489 §14.16): a DNS name of at most 255 ASCII characters.
///
/// # Errors
/// The value exceeds 255 bytes, or is not ASCII.
pub fn alternate_domain(value: &[u8]) -> Result<&str, ValueError> {
    const DOMAIN_LEN_MAX: usize = 255;
    if value.len() > DOMAIN_LEN_MAX {
        return Err(ValueError::Length);
    }
    if !value.is_ascii() {
        return Err(ValueError::DomainName);
    }
    text(value)
}
