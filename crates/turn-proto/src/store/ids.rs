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

    /// The last id of an allocation that was given.
    pub(crate) const fn last_allocation(&self) -> AllocationId {
        AllocationId::new(self.worker, self.allocations)
    }

    /// Gives no id again that another process has given, up to this one.
    pub(crate) const fn skip_to(&mut self, taken: AllocationId) {
        if taken.worker().0 == self.worker.0 && taken.counter() > self.allocations {
            self.allocations = taken.counter();
        }
    }

    pub(crate) const fn next_relay(&mut self) -> RelayId {
        self.relays += 1;
        RelayId(self.relays)
    }

    /// The next relay that has no socket of its own.
    pub(crate) const fn next_shared_relay(&mut self) -> RelayId {
        self.relays += 1;
        RelayId::shared(self.relays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither an old id of this worker nor an id of another worker number makes an id repeat.
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
