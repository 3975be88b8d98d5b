//! Ids assigned by a worker. No id is reused during the life of the process.

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

    /// Returns the last assigned allocation id.
    pub(crate) const fn last_allocation(&self) -> AllocationId {
        AllocationId::new(self.worker, self.allocations)
    }

    /// Skips the ids up to `taken`, which another process has assigned under this worker number.
    pub(crate) const fn skip_to(&mut self, taken: AllocationId) {
        if taken.worker().0 == self.worker.0 && taken.counter() > self.allocations {
            self.allocations = taken.counter();
        }
    }

    pub(crate) const fn next_relay(&mut self) -> RelayId {
        self.relays += 1;
        RelayId(self.relays)
    }

    /// Returns the next id of a relayed address on a shared socket.
    pub(crate) const fn next_shared_relay(&mut self) -> RelayId {
        self.relays += 1;
        RelayId::shared(self.relays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither an old id of this worker nor an id of another worker number causes a repeated id.
    #[test]
    fn goes_on_behind_later_ids_of_its_own_number_alone() {
        let mut ids = Ids::new(WorkerId(1));
        for taken in [(1, 7), (1, 3), (2, 90), (2, 1)] {
            ids.skip_to(AllocationId::new(WorkerId(taken.0), taken.1));
            assert_eq!(ids.last_allocation(), AllocationId::new(WorkerId(1), 7), "{taken:?}");
        }
        assert_eq!(ids.next_allocation(), AllocationId::new(WorkerId(1), 8));
    }
}
