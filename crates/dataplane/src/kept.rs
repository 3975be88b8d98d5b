//! Snapshots of one worker, as stored by a keeper.

use std::collections::BTreeMap;

use turn_types::{AllocationId, RelayId, WorkerId};

use crate::snapshot::{AllocationSnapshot, Export};

/// Latest snapshot of each allocation of one worker, with descriptors of type `D`. A successor
/// receives the snapshots after a crash of the server.
#[derive(Debug)]
pub struct KeptWorker<D> {
    last_id: AllocationId,
    allocations: BTreeMap<AllocationId, KeptAllocation<D>>,
    /// Allocations of the predecessor, until the server that has imported them has sent complete
    /// snapshots.
    earlier: BTreeMap<AllocationId, KeptAllocation<D>>,
}

#[derive(Debug)]
struct KeptAllocation<D> {
    snapshot: AllocationSnapshot,
    sockets: Vec<(RelayId, D)>,
}

impl<D> KeptWorker<D> {
    /// Creates a worker without allocations.
    #[must_use]
    pub const fn new(worker: WorkerId) -> Self {
        let last_id = AllocationId::new(worker, 0);
        Self { last_id, allocations: BTreeMap::new(), earlier: BTreeMap::new() }
    }

    /// Keeps the allocations for the server that has imported them, until the snapshots of that
    /// server are complete.
    #[must_use]
    pub fn for_successor(mut self) -> Self {
        self.earlier.append(&mut self.allocations);
        self
    }

    /// Returns the number of allocations.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.allocations.len() + self.earlier.len()
    }

    /// Applies a later snapshot. Sockets of earlier snapshots remain if the later snapshot has
    /// none.
    pub fn change(&mut self, export: Export<D>) {
        let (snapshot, mut descriptors) = export.into_parts();
        // Removals by operators arrive without an id.
        self.last_id = self.last_id.max(snapshot.last_id);
        self.remove(snapshot.ended);
        if snapshot.complete {
            self.earlier.clear();
        }
        for snapshot in snapshot.allocations {
            self.earlier.remove(&snapshot.id);
            let before = self.allocations.remove(&snapshot.id);
            let mut sockets: BTreeMap<RelayId, D> =
                before.into_iter().flat_map(|before| before.sockets).collect();
            let relays = snapshot.relays.iter().filter_map(|relay| {
                let new = relay.socket.and_then(|index| descriptors.take(index));
                Some((relay.relay, new.or_else(|| sockets.remove(&relay.relay))?))
            });
            let sockets = relays.collect();
            self.allocations.insert(snapshot.id, KeptAllocation { snapshot, sockets });
        }
    }

    /// Removes allocations.
    pub fn remove(&mut self, ids: impl IntoIterator<Item = AllocationId>) {
        for id in ids {
            self.allocations.remove(&id);
            self.earlier.remove(&id);
        }
    }

    /// Returns all complete allocations with their sockets, for a further process.
    #[must_use]
    pub fn export(&mut self) -> Export<&D> {
        for kept in self.allocations.values_mut().chain(self.earlier.values_mut()) {
            kept.snapshot.given += 1;
        }
        let mut export = Export::new(self.last_id.worker());
        export.snapshot.last_id = self.last_id;
        for KeptAllocation { snapshot, sockets } in
            self.allocations.values().chain(self.earlier.values())
        {
            let mut snapshot = snapshot.clone();
            for relay in &mut snapshot.relays {
                let socket = sockets.iter().find(|(name, _)| *name == relay.relay);
                relay.socket = socket.map(|(_, descriptor)| export.add(descriptor));
            }
            if snapshot.relays.iter().all(|relay| relay.own == relay.socket.is_some()) {
                export.snapshot.allocations.push(snapshot);
            }
        }
        export.snapshot.total = export.snapshot.allocations.len() as u64;
        export
    }
}

#[cfg(test)]
mod tests {
    use state_format::Bytes;

    use super::*;

    fn snapshot(number: u64) -> Export<()> {
        let mut export = Export::new(WorkerId(0));
        let id = AllocationId::new(WorkerId(0), number);
        let (state, relays) = (Bytes(vec![1]), Vec::new());
        let allocation = AllocationSnapshot { id, state, relays, session: None, given: 0 };
        export.snapshot.allocations.push(allocation);
        export.snapshot.complete = false;
        export
    }

    /// Returns for each allocation the counter of the id, and the number of processes that have
    /// received the snapshot.
    fn given(kept: &mut KeptWorker<()>) -> Vec<(u64, u32)> {
        let export = kept.export();
        let allocations = export.snapshot.allocations.iter();
        let mut all: Vec<_> = allocations.map(|one| (one.id.counter(), one.given)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_snapshot_counts_the_processes_that_have_got_it() {
        let mut kept = KeptWorker::new(WorkerId(0));
        kept.change(snapshot(1));
        kept.change(snapshot(2));
        assert_eq!(given(&mut kept), [(1, 1), (2, 1)]);
        let mut kept = kept.for_successor();
        kept.change(snapshot(2));
        assert_eq!(given(&mut kept), [(1, 2), (2, 1)]);
        kept.change(Export::new(WorkerId(0)));
        assert_eq!(given(&mut kept), [(2, 2)], "its own are complete");
    }

    #[test]
    fn a_snapshot_of_removals_alone_leaves_the_last_id() {
        let mut kept = KeptWorker::new(WorkerId(0));
        let mut export = snapshot(1);
        export.snapshot.last_id = AllocationId::new(WorkerId(0), 7);
        kept.change(export);
        let mut removals = Export::new(WorkerId(0));
        removals.snapshot.ended = vec![AllocationId::new(WorkerId(0), 1)];
        kept.change(removals);
        let export = kept.export();
        assert_eq!((export.snapshot.last_id.counter(), export.snapshot.total), (7, 0));
    }
}
