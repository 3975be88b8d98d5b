//! Places in an array, given out and taken back.

use std::sync::{Mutex, PoisonError};

/// Places that are free, shared by all workers: touched when a channel is bound or ends, never for a
/// packet.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<Vec<u32>>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        Self { free: Mutex::new((0..count).rev().collect()) }
    }

    /// A place; `None` when all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        self.free().pop()
    }

    /// Gives a place back.
    pub(crate) fn put_back(&self, slot: u32) {
        self.free().push(slot);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // A list of numbers is whole whatever happened to who held it.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
