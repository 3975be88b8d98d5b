//! Bytes to be read.

use crate::{Malformed, Value};

/// Bytes that get fewer.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// All of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes that are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Takes a fixed number of bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// Takes a number of things that follow, each of a byte or more.
    ///
    /// # Errors
    /// So many cannot follow: there are fewer bytes.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = u32::read(self)? as usize;
        if count > self.left() { Err(Malformed::Truncated) } else { Ok(count) }
    }

    /// Takes what stands behind its length.
    ///
    /// # Errors
    /// There are fewer bytes.
    pub fn sized(&mut self) -> Result<Self, Malformed> {
        let len = self.count()?;
        self.take(len).map(Self::new)
    }

    /// The next field of a struct; `None` behind the last.
    ///
    /// # Errors
    /// There are fewer bytes.
    pub fn field(&mut self) -> Result<Option<(u8, Self)>, Malformed> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let [tag] = self.array()?;
        Ok(Some((tag, self.sized()?)))
    }

    /// Reads a value that has to be the last.
    ///
    /// # Errors
    /// It is none of its type, or there is more.
    pub fn last<T: Value>(mut self) -> Result<T, Malformed> {
        let value = T::read(&mut self)?;
        if self.bytes.is_empty() { Ok(value) } else { Err(Malformed::Trailing) }
    }
}
