//! Arrays that the kernel reads and writes through pointers kept between calls.
//!
//! A message header points at its address, its control buffer and its payload. These pointers are
//! written once and used by many calls, which a `Vec` does not allow: under the aliasing rules,
//! each `&mut` to it invalidates earlier pointers. Here every access goes through the one pointer
//! that owns the memory, so pointers derived from it stay valid.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Plain data for which all-zero bytes are a value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and the type must not be zero-sized.
pub(crate) unsafe trait Zeroed: Copy {}

// SAFETY: zero is an integer.
unsafe impl Zeroed for u8 {}
// SAFETY: null pointers and zero lengths; all fields are integers or raw pointers.
unsafe impl Zeroed for libc::iovec {}
// SAFETY: as above.
unsafe impl Zeroed for libc::mmsghdr {}

/// A boxed slice of fixed length, initially zero, whose elements may be pointed at.
pub(crate) struct HeapArray<T: Zeroed> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: the array owns its memory alone, and its elements are plain data. Raw pointers among
// them point into arrays that move to another thread together with this one, or are rewritten
// before each use.
unsafe impl<T: Zeroed> Send for HeapArray<T> {}

impl<T: Zeroed> HeapArray<T> {
    /// `len` zeroed elements; `len` is at least 1.
    pub(crate) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is not of size zero: `T` is not (by `Zeroed`), `len` is not
        // (asserted).
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

    /// Pointer to element `index`; valid while the array lives.
    pub(crate) fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: `index` is inside the one allocation that `first` points at.
        unsafe { self.first.as_ptr().add(index) }
    }

    pub(crate) fn get(&self, index: usize) -> &T {
        // SAFETY: the element is inside the allocation and initialised (zeroed at birth). The
        // kernel writes to it only in calls made by functions that hold `&mut self`.
        unsafe { &*self.pointer(index) }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.pointer(index) }
    }

    /// The elements of `range`; panics like slice indexing when it is not inside the array.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: as in `get`, for all `len` elements.
        let all = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) };
        &all[range]
    }

    /// As [`slice`](Self::slice), to be written.
    pub(crate) fn slice_mut(&mut self, range: Range<usize>) -> &mut [T] {
        // SAFETY: as in `get_mut`, for all `len` elements.
        let all = unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) };
        &mut all[range]
    }
}

impl<T: Zeroed> Drop for HeapArray<T> {
    fn drop(&mut self) {
        // SAFETY: `first` came from `alloc_zeroed` with the same layout; elements need no drop,
        // being `Copy`.
        unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.len)) }
    }
}
