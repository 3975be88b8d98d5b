//! The book of quotas and reservations, shared by all workers.

use std::sync::{Mutex, PoisonError};

use turn_proto::{Book, SharedBook};

/// A [`Book`] behind a mutex. Workers open it when an allocation is made or ends and when a port
/// is reserved, never for a relayed packet.
#[derive(Debug, Default)]
pub struct LockedBook {
    book: Mutex<Book>,
}

impl LockedBook {
    /// An empty book.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl SharedBook for LockedBook {
    fn with(&self, f: &mut dyn FnMut(&mut Book)) {
        // A worker that panicked in here takes the process with it (the binary watches); until
        // then the others may still give back what they hold.
        f(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
