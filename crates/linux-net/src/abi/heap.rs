//! Arrays that the kernel reads and writes through pointers that remain valid between calls.
//!
//! A message header points at an address, a control buffer and a payload. These pointers are
//! written once and used by many calls. A `Vec` does not allow that: under the aliasing rules, each
//! `&mut` to the `Vec` invalidates earlier pointers. Here every access uses the single pointer that
//! owns the memory, so pointers derived from that pointer stay valid.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Plain data types for which all-zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and the type must not be zero-sized.
pub(crate) unsafe trait Zeroed: Copy {}

// SAFETY: zero is a valid integer.
unsafe impl Zeroed for u8 {}
// SAFETY: all fields are integers or raw pointers. Zero means null pointers and zero lengths.
unsafe impl Zeroed for libc::iovec {}
// SAFETY: as above.
unsafe impl Zeroed for libc::mmsghdr {}

/// Boxed slice of fixed length, initially zero, whose elements may be pointed at.
pub(crate) struct HeapArray<T: Zeroed> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: the array is the only owner of the memory, and the elements are plain data. Raw pointers
// among the elements point into arrays that move to another thread together with this array, or are
// rewritten before each use.
unsafe impl<T: Zeroed> Send for HeapArray<T> {}

impl<T: Zeroed> HeapArray<T> {
    /// Allocates `len` zeroed elements. `len` must be at least 1.
    pub(crate) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout does not have size zero, because `T` is not zero-sized (by `Zeroed`)
        // and `len` is not zero (asserted).
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(first) = NonNull::new(memory.cast::<T>()) else { handle_alloc_error(layout) };
        Self { first, len }
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0, "an empty array");
        match Layout::array::<T>(len) {
            Ok(layout) => layout,
            Err(_) => panic!("an array larger than memory"),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to element `index`, valid while the array lives.
    pub(crate) fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: `index` is inside the one allocation that `first` points at.
        unsafe { self.first.as_ptr().add(index) }
    }

    pub(crate) fn get(&self, index: usize) -> &T {
        // SAFETY: the element is inside the allocation and initialised (zeroed on allocation). The
        // kernel writes to the element only in calls made by functions that hold `&mut self`.
        unsafe { &*self.pointer(index) }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.pointer(index) }
    }

    /// Returns the elements of `range`. Panics if the range is outside the array, like slice
    /// indexing.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: as in `get`, for all `len` elements.
        let all = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) };
        &all[range]
    }

    /// Returns the elements of `range` for writing. Panics if the range is outside the array, like
    /// slice indexing.
    pub(crate) fn slice_mut(&mut self, range: Range<usize>) -> &mut [T] {
        // SAFETY: as in `get_mut`, for all `len` elements.
        let all = unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) };
        &mut all[range]
    }
}

impl<T: Zeroed> Drop for HeapArray<T> {
    fn drop(&mut self) {
        // SAFETY: `first` was allocated by `alloc_zeroed` with an equal layout. The elements need
        // no drop, because `T` is `Copy`.
        unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.len)) }
    }
}
