//! Memory shared by the programs and user space: a memory-mapped array of the kernel. Counters are
//! read, and routes written, without a system call.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// The words of a mapped array. The kernel keeps the memory while it is mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to this value until it is dropped, by whatever thread, and is reached
// through atomics alone.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps an array that was made with BPF_F_MMAPABLE and has `words` words of 8 bytes.
    ///
    /// # Errors
    /// No memory, or another kind of map.
    pub(crate) fn map(array: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let len = words * size_of::<AtomicU64>();
        // SAFETY: the kernel chooses an unused address. It refuses a length beyond that of the
        // array.
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

    /// All words.
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` words are mapped, at the beginning of a page and hence aligned, until
        // this value is dropped. The kernel filled them with zeros, and every value is valid for an
        // atomic. The programs write to them as well, whole words at a time.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `map` with this length, and no slice of it outlives this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
