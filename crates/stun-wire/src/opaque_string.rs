//! The OpaqueString profile (RFC 8265 §4.2): preparation of names, realms and passwords.

mod context;
mod tables;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use tables::{FREEFORM, contains};

/// Text that cannot be an OpaqueString (RFC 8265 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PrecisError {
    /// No characters at all.
    Empty,
    /// A character that is not allowed, as a control character.
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

/// The OpaqueString profile (RFC 8265 §4.2): other spaces become U+0020, the text is normalised to
/// NFC, control characters and the like are refused. Printable ASCII is returned as it is.
///
/// # Errors
/// The text is empty or has a character that the profile forbids.
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

/// Space separators (general category Zs) except U+0020.
fn is_other_space(c: char) -> bool {
    matches!(
        c,
        '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}'
    )
}
