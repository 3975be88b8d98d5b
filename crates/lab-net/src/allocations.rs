//! A counting allocator, for tests of code that must not allocate.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: lab_net::allocations::Counting = lab_net::allocations::Counting;
//!
//! let before = lab_net::allocations::on_this_thread();
//! let boxed = Box::new(7);
//! assert_eq!(lab_net::allocations::on_this_thread() - before, 1);
//! # drop(boxed);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting the allocations of each thread.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Number of allocations and reallocations of the calling thread since it began. Freeing is not
/// counted.
#[must_use]
pub fn on_this_thread() -> u64 {
    COUNT.get()
}

fn count() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: every call goes to the system's allocator unchanged, which keeps the promises of
// `GlobalAlloc`. Counting neither allocates nor unwinds: the counter is a plain number that needs
// neither a lazy start nor a destructor, so it can be reached at any time in a thread's life.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the same promises that are asked here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; `memory` came from the system's allocator, as all memory here does.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
