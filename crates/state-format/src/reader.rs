//! Reader of serialised values.

use crate::{Malformed, Value};

/// Remaining bytes of serialised values.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of remaining bytes.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Takes this number of bytes.
    ///
    /// # Errors
    /// Fewer bytes remain.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Takes a fixed number of bytes.
    ///
    /// # Errors
    /// Fewer bytes remain.
    pub fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// Reads the number of elements that follow, each of one byte or more.
    ///
    /// # Errors
    /// The number exceeds the remaining bytes.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = u32::read(self)? as usize;
        if count > self.left() { Err(Malformed::Truncated) } else { Ok(count) }
    }

    /// Takes the bytes after a length prefix.
    ///
    /// # Errors
    /// Fewer bytes remain.
    pub fn sized(&mut self) -> Result<Self, Malformed> {
        let len = self.count()?;
        self.take(len).map(Self::new)
    }

    /// Reads the next field of a struct: the tag, and a reader of the value. Returns `None` after
    /// the last field.
    ///
    /// # Errors
    /// The field is truncated.
    pub fn field(&mut self) -> Result<Option<(u8, Self)>, Malformed> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let [tag] = self.array()?;
        Ok(Some((tag, self.sized()?)))
    }

    /// Parses a value that must be the last.
    ///
    /// # Errors
    /// The bytes do not belong to the type, or more bytes follow.
    pub fn last<T: Value>(mut self) -> Result<T, Malformed> {
        let value = T::read(&mut self)?;
        if self.bytes.is_empty() { Ok(value) } else { Err(Malformed::Trailing) }
    }
}
