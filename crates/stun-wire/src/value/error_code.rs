//! ERROR-CODE, ADDRESS-ERROR-CODE and UNKNOWN-ATTRIBUTES (RFC 8489 §14.8, §14.13; RFC 8656 §18.12).

use super::text::reason;
use crate::attribute::AttributeType;
use crate::error::ValueError;

/// Parses ERROR-CODE (RFC 8489 §14.8): the code, 300..=699, and the reason phrase. Reserved bits
/// are ignored.
///
/// # Errors
/// The value is too short, the class is outside 3..=6, the number exceeds 99, or the phrase is not
/// UTF-8 or exceeds 763 bytes.
pub fn error_code(value: &[u8]) -> Result<(u16, &str), ValueError> {
    let (_, code, reason) = address_error_code(value)?;
    Ok((code, reason))
}

/// Parses ADDRESS-ERROR-CODE (RFC 8656 §18.12): the address family as a raw number, the code,
/// 300..=699, and the reason phrase.
///
/// # Errors
/// Fails for the reasons of [`error_code`].
pub fn address_error_code(value: &[u8]) -> Result<(u8, u16, &str), ValueError> {
    let Some((&[family, _, class, number], phrase)) = value.split_first_chunk::<4>() else {
        return Err(ValueError::Length);
    };
    let class = class & 0x07;
    if !(3..=6).contains(&class) || number > 99 {
        return Err(ValueError::ErrorCode);
    }
    let code = u16::from(class) * 100 + u16::from(number);
    Ok((family, code, reason(phrase)?))
}

/// Parses UNKNOWN-ATTRIBUTES (RFC 8489 §14.13), and returns the types. A single trailing byte is
/// ignored.
pub fn unknown_attributes(value: &[u8]) -> impl Iterator<Item = AttributeType> + '_ {
    value.as_chunks::<2>().0.iter().map(|&word| AttributeType(u16::from_be_bytes(word)))
}

/// Encodes the four bytes before the reason phrase. Returns `None` unless `code` is in 300..=699.
pub(crate) fn encode(family: u8, code: u16) -> Option<[u8; 4]> {
    let (class, number) = (u8::try_from(code / 100).ok()?, u8::try_from(code % 100).ok()?);
    (3..=6).contains(&class).then_some([family, 0, class, number])
}
