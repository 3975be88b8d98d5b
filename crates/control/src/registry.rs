//! The registry of quotas and reservations, shared by all workers.

use std::sync::{Mutex, PoisonError};

use turn_proto::{Registry, SharedRegistry};

/// A [`Registry`] behind a mutex. Workers open it when an allocation is made or ends and when a
/// port is reserved, never for a relayed packet.
#[derive(Debug, Default)]
pub struct LockedRegistry {
    registry: Mutex<Registry>,
}

impl LockedRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl LockedRegistry {
    /// Live allocations of a realm.
    #[must_use]
    pub fn allocations_in(&self, realm: &str) -> u32 {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).allocations_in(realm)
    }
}

impl SharedRegistry for LockedRegistry {
    fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
        // A worker that panicked in here takes the process with it (the binary watches); until
        // then the others may still give back what they hold.
        f(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
