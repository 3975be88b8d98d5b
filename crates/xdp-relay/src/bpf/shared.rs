//! Memory shared by the programs and user space: a memory-mapped array of the kernel. Counters are
//! read, and routes written, without a system call.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// Words of a mapped array. The kernel keeps the memory while the array is mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to this value until the value is dropped, in any thread, and is
// accessed only through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps an array that was created with BPF_F_MMAPABLE and has `words` words of 8 bytes.
    ///
    /// # Errors
    /// Memory is short, or the descriptor is another kind of map.
    pub(crate) fn map(array: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let len = words * size_of::<AtomicU64>();
        // SAFETY: the kernel chooses an unused address. The kernel refuses a length beyond that of
        // the array.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }

    /// Returns all words of the array.
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` words are mapped, at the start of a page and hence aligned, until this
        // value is dropped. The kernel filled the words with zeros, and every value is valid for an
        // atomic. The programs write to the array as well, and always write complete words.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with this length, and no slice of the mapping outlives
        // this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
