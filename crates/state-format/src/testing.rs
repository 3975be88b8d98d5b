//! Helpers of the tests.

use crate::{Malformed, Reader, Value, Writer};

/// Serialises and parses a value.
pub(crate) fn again<T: Value>(value: &T) -> Result<T, Malformed> {
    let mut out = Writer::new();
    value.write(&mut out);
    Reader::new(&out.into_bytes()).last()
}
