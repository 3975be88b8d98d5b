//! Workers of mobile allocations. A worker that receives a Refresh by ticket finds the allocation's
//! worker here.

use turn_types::{AllocationId, WorkerId};

use super::RegistryHandle;

/// Location of a mobile allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    /// Present worker of the allocation, or the last worker during a move.
    pub(super) worker: WorkerId,
    /// True if the next worker must remove the allocation on arrival.
    pub(super) ends: bool,
}

/// Registered location of an allocation. Dropping the lease removes the location.
#[derive(Debug)]
pub(crate) struct LocationLease {
    registry: RegistryHandle,
    allocation: AllocationId,
    worker: WorkerId,
}

impl LocationLease {
    /// Registers the worker of an allocation.
    pub(super) fn new(
        registry: RegistryHandle,
        allocation: AllocationId,
        worker: WorkerId,
    ) -> Self {
        let mut lease = Self { registry, allocation, worker };
        lease.moved_to(worker);
        lease
    }

    pub(crate) const fn allocation(&self) -> AllocationId {
        self.allocation
    }

    /// Registers another worker. Returns true if the new worker must remove the allocation.
    pub(crate) fn moved_to(&mut self, worker: WorkerId) -> bool {
        self.worker = worker;
        self.registry.with(|registry| {
            let new = Location { worker, ends: false };
            let location = registry.locations.entry(self.allocation).or_insert(new);
            location.worker = worker;
            location.ends
        })
    }
}

impl Drop for LocationLease {
    fn drop(&mut self) {
        self.registry.with(|registry| {
            // Two workers may have copies of an allocation. The copy registered last owns the
            // location.
            let is_own = |found: &Location| found.worker == self.worker;
            if registry.locations.get(&self.allocation).is_some_and(is_own) {
                registry.locations.remove(&self.allocation);
            }
        });
    }
}
