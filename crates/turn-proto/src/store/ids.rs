//! Ids that a worker gives: never reused while the process lives.

use turn_types::{AllocationId, RelayId, WorkerId};

#[derive(Debug)]
pub(crate) struct Ids {
    worker: WorkerId,
    allocations: u64,
    relays: u64,
}

impl Ids {
    pub(crate) const fn new(worker: WorkerId) -> Self {
        Self { worker, allocations: 0, relays: 0 }
    }

    pub(crate) const fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) const fn next_allocation(&mut self) -> AllocationId {
        self.allocations += 1;
        AllocationId::new(self.worker, self.allocations)
    }

    pub(crate) const fn next_relay(&mut self) -> RelayId {
        self.relays += 1;
        RelayId(self.relays)
    }
}
