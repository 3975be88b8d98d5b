//! Errors of readers.

use core::fmt;

/// Why bytes are no value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They end too early.
    Truncated,
    /// More bytes follow than belong to it.
    Trailing,
    /// A field that this version does not have, by its tag.
    UnknownField(u8),
    /// A field comes twice.
    FieldTwice(u8),
    /// A field without default is missing.
    MissingField(u8),
    /// A number or text that is no value of this type.
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
