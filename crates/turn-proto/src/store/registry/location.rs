//! Workers of mobile allocations, by which a worker finds the one to ask.

use turn_types::{AllocationId, WorkerId};

use super::RegistryHandle;

/// The worker of a mobile allocation, whose client may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    /// The worker that has it, or had it last.
    pub(super) worker: WorkerId,
    /// It is to end as soon as a worker has it.
    pub(super) ends: bool,
}

/// The registered location of an allocation; removed when it is dropped.
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

    /// Registers another worker. Returns true if the allocation is to end there.
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
            // Of two copies of an allocation, at two workers, the later one counts.
            let is_own = |found: &Location| found.worker == self.worker;
            if registry.locations.get(&self.allocation).is_some_and(is_own) {
                registry.locations.remove(&self.allocation);
            }
        });
    }
}
