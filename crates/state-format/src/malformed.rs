//! Errors of readers.

use core::fmt;

/// Reason why bytes are not a value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes are truncated.
    Truncated,
    /// Bytes follow after the value.
    Trailing,
    /// A field has a tag that this version does not know.
    UnknownField(u8),
    /// A field occurs twice.
    FieldTwice(u8),
    /// A field without default is missing.
    MissingField(u8),
    /// A number or text is invalid for the type, which is named here.
    NoValue(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends too early"),
            Self::Trailing => f.write_str("there is more behind its end"),
            Self::UnknownField(tag) => write!(f, "field {tag} is not known"),
            Self::FieldTwice(tag) => write!(f, "field {tag} is there twice"),
            Self::MissingField(tag) => write!(f, "field {tag} is missing"),
            Self::NoValue(of) => write!(f, "no {of}"),
        }
    }
}

impl core::error::Error for Malformed {}
