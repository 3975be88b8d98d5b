//! Writer of serialised values.

use alloc::vec::Vec;

use crate::Value;

/// Buffer for serialised values.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates an empty writer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Appends raw bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a number of elements or bytes.
    ///
    /// # Panics
    /// The number exceeds 32 bits.
    pub fn count(&mut self, count: usize) {
        u32::try_from(count).expect("no more than memory holds of them").write(self);
    }

    /// Appends the output of `write`, after its length.
    pub fn sized(&mut self, write: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.count(0);
        let begin = self.bytes.len();
        write(self);
        let len = u32::try_from(self.bytes.len() - begin).expect("less than 4 GiB");
        self.bytes[at..begin].copy_from_slice(&len.to_le_bytes());
    }

    /// Appends a field of a struct.
    pub fn field(&mut self, tag: u8, value: &impl Value) {
        self.put(&[tag]);
        self.sized(|out| value.write(out));
    }

    /// Removes and returns the bytes. The writer retains its capacity.
    #[must_use]
    pub fn take_bytes(&mut self) -> Vec<u8> {
        let bytes = self.bytes.clone();
        self.bytes.clear();
        bytes
    }

    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
