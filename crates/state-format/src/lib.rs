//! Serialised form of a server's state for another process: versioned, length-prefixed records.
//!
//! ```text
//! document = magic  version  value
//! struct   = length  { tag  length  value }     one record for each field, in any order
//! list     = count  { value }
//! ```
//!
//! Numbers are little-endian. A reader recognises the fields of a struct by their tags, so a later
//! version may add a field. A document without that field gets the default declared with
//! [`fields!`]. A tag is never reused for another field. A document with an unknown version is
//! refused completely, because an ignored field might forbid something.
//!
//! Input is not trusted. No input causes a panic, and lengths are checked against the number of
//! bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod core_values;
mod document;
mod fields;
mod malformed;
mod net_values;
mod reader;
#[cfg(test)]
mod testing;
mod writer;

pub use core_values::Bytes;
pub use document::{DocumentError, VERSION, read_document, write_document};
pub use fields::{once, required};
pub use malformed::Malformed;
pub use reader::Reader;
pub use writer::Writer;

/// Value with a serialised form.
pub trait Value: Sized {
    /// Appends the serialised form of the value.
    fn write(&self, out: &mut Writer);

    /// Parses a value, which may be followed by other values.
    ///
    /// # Errors
    /// The bytes do not belong to this type, or are too few.
    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed>;
}
