//! Changed allocations, for a driver that copies allocations to another process.

use ahash::RandomState;
use hashbrown::HashSet;
use turn_types::AllocationId;

/// Allocations created, changed or removed since the driver's last query. Empty while the driver
/// does not copy.
#[derive(Debug)]
pub(crate) struct Changes {
    ids: HashSet<AllocationId, RandomState>,
    are_kept: bool,
}

impl Changes {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { ids: HashSet::with_hasher(hasher), are_kept: false }
    }

    /// Starts recording changes with the allocations in `from`, or stops recording if `from` is
    /// `None`.
    pub(crate) fn keep(&mut self, from: Option<impl Iterator<Item = AllocationId>>) {
        self.are_kept = from.is_some();
        self.ids.clear();
        match from {
            Some(all) => self.ids.extend(all),
            None => self.ids.shrink_to_fit(),
        }
    }

    pub(crate) fn add(&mut self, id: AllocationId) {
        if self.are_kept {
            self.ids.insert(id);
        }
    }

    /// Removes and returns up to `most` changed allocations, in any order.
    pub(crate) fn take(&mut self, most: usize) -> impl Iterator<Item = AllocationId> {
        self.ids.extract_if(|_| true).take(most)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use turn_types::WorkerId;

    use super::*;

    fn id(number: u64) -> AllocationId {
        AllocationId::new(WorkerId(1), number)
    }

    #[test]
    fn each_change_is_taken_once_and_none_while_nobody_asks() {
        let mut changes = Changes::new(RandomState::with_seeds(1, 2, 3, 4));
        changes.add(id(1));
        assert!(changes.is_empty());
        changes.keep(Some((1..=5).map(id)));
        changes.add(id(5));
        changes.add(id(6));
        let taken: Vec<_> = changes.take(2).collect();
        assert_eq!(taken.len(), 2);
        let mut all: BTreeSet<_> = taken.into_iter().collect();
        all.extend(changes.take(9));
        assert_eq!(all, (1..=6).map(id).collect());
        assert!(changes.is_empty());
        changes.keep(None::<core::iter::Empty<AllocationId>>);
        changes.add(id(1));
        assert!(changes.is_empty());
    }
}
