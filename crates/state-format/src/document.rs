//! Documents: kind and version, followed by the content.

use alloc::vec::Vec;
use core::fmt;

use crate::{Malformed, Reader, Value, Writer};

/// First bytes of a document.
const MAGIC: [u8; 8] = *b"TURNPIKE";

/// Version of written documents. Increased with each change of a field, a tag or a meaning.
pub const VERSION: u32 = 2;

/// Oldest version that can be read.
const OLDEST: u32 = 2;

/// Reason why bytes are not a readable document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentError {
    /// The bytes are not a document.
    Foreign,
    /// The document has this version, which this program cannot read.
    Version(u32),
    /// The content cannot be read.
    Content(Malformed),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no state of a Turnpike server"),
            Self::Version(version) => write!(
                f,
                "its format has version {version}, and this program reads {OLDEST} to {VERSION}: take a program that is {}",
                if *version > VERSION { "as new as the one that wrote it" } else { "less new" }
            ),
            Self::Content(error) => write!(f, "its content cannot be read: {error}"),
        }
    }
}

impl core::error::Error for DocumentError {}

/// Serialises a document with this content.
#[must_use]
pub fn write_document(content: &impl Value) -> Vec<u8> {
    let mut out = Writer::new();
    out.put(&MAGIC);
    VERSION.write(&mut out);
    content.write(&mut out);
    out.into_bytes()
}

/// Parses the content of a document.
///
/// # Errors
/// The bytes are not a document, have an unknown version, or are damaged.
pub fn read_document<T: Value>(bytes: &[u8]) -> Result<T, DocumentError> {
    let mut input = Reader::new(bytes);
    if input.array() != Ok(MAGIC) {
        return Err(DocumentError::Foreign);
    }
    let version = u32::read(&mut input).map_err(DocumentError::Content)?;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(DocumentError::Version(version));
    }
    input.last().map_err(DocumentError::Content)
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn a_document_reads_back() {
        assert_eq!(read_document(&write_document(&7_u64)), Ok(7_u64));
    }

    #[test]
    fn others_are_refused_with_a_sentence() {
        let mut bytes = write_document(&7_u64);
        bytes[8] = 200;
        let refused = read_document::<u64>(&bytes);
        assert_eq!(refused, Err(DocumentError::Version(200)));
        let said = refused.map_err(|error| error.to_string()).unwrap_err();
        assert!(said.contains("version 200") && said.contains("as new as"), "{said}");
        bytes[0] = b'X';
        assert_eq!(read_document::<u64>(&bytes), Err(DocumentError::Foreign));
        assert_eq!(read_document::<u64>(b""), Err(DocumentError::Foreign));
        let mut longer = write_document(&7_u64);
        longer.push(0);
        let refused = read_document::<u64>(&longer);
        assert_eq!(refused, Err(DocumentError::Content(Malformed::Trailing)));
        let said = refused.map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(said, "its content cannot be read: there is more behind its end");
    }
}
