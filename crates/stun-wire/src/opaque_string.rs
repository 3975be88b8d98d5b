//! OpaqueString profile (RFC 8265 §4.2): preparation of names, realms and passwords.

mod context;
mod tables;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use tables::{FREEFORM, contains};

/// Error for text that cannot be converted to an OpaqueString (RFC 8265 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PrecisError {
    /// The text is empty.
    Empty,
    /// The text contains a forbidden character, such as a control character.
    Forbidden,
}

impl fmt::Display for PrecisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty text",
            Self::Forbidden => "text with a forbidden character",
        })
    }
}

impl core::error::Error for PrecisError {}

/// Converts text to an OpaqueString (RFC 8265 §4.2): other spaces become U+0020, and the text is
/// normalised to NFC. Printable ASCII is returned unchanged.
///
/// # Errors
/// The text is empty, or contains a character that the profile forbids, such as a control
/// character.
pub fn opaque_string(text: &str) -> Result<Cow<'_, str>, PrecisError> {
    if text.is_empty() {
        return Err(PrecisError::Empty);
    }
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(Cow::Borrowed(text));
    }
    let allowed = |(at, c)| contains(&FREEFORM, c) || context::allows(text, at, c);
    if !text.char_indices().all(allowed) {
        return Err(PrecisError::Forbidden);
    }
    if !text.contains(is_other_space) && is_nfc(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mapped = text.chars().map(|c| if is_other_space(c) { ' ' } else { c });
    Ok(Cow::Owned(mapped.nfc().collect::<String>()))
}

/// Returns true for space separators (general category Zs) except U+0020.
fn is_other_space(c: char) -> bool {
    matches!(
        c,
        '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}'
    )
}
