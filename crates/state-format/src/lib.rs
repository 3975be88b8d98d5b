//! The form in which a server's state goes to another process: versioned, length-prefixed records.
//!
//! ```text
//! document = magic  version  value
//! struct   = length  { tag  length  value }     one record for each field, in any order
//! list     = count  { value }
//! ```
//!
//! Numbers are little-endian. A reader knows the fields of a struct by their tags, so that a later
//! version may add one: a document without it gets the default that [`fields!`] names. A tag is
//! never used again for another field. A document of a version that is not known is refused as a
//! whole, since a field that is left out may be one that forbids something.
//!
//! Input is not trusted: no input causes a panic, and a length is believed only as far as there are
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

/// A value with a form of bytes.
pub trait Value: Sized {
    /// Appends it.
    fn write(&self, out: &mut Writer);

    /// Reads one, which may be followed by others.
    ///
    /// # Errors
    /// The bytes are none of this type, or too few.
    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed>;
}
