//! A keeper's copies of one worker's allocations.

use std::collections::BTreeMap;

use turn_types::{AllocationId, WorkerId};

use crate::copies::{CopiedAllocation, CopiedRelay, Copies};

/// The last copies of each allocation of one worker, with sockets of type `S`: for the next
/// process, when the one that has sent them is gone.
#[derive(Debug)]
pub struct KeptWorker<S> {
    last_id: AllocationId,
    shared: Vec<S>,
    allocations: BTreeMap<AllocationId, KeptAllocation<S>>,
}

struct KeptAllocation<S> {
    state: Vec<u8>,
    relays: Vec<CopiedRelay<S>>,
    session: Option<Vec<u8>>,
}

impl<S> std::fmt::Debug for KeptAllocation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptAllocation").finish_non_exhaustive()
    }
}

impl<S> KeptWorker<S> {
    /// Of a worker that has no allocations.
    #[must_use]
    pub const fn new(worker: WorkerId) -> Self {
        let last_id = AllocationId::new(worker, 0);
        Self { last_id, shared: Vec::new(), allocations: BTreeMap::new() }
    }

    /// Number of allocations that it has.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.allocations.len()
    }

    /// Takes newer copies. A socket that has come stays with its relay.
    pub fn change(&mut self, copies: Copies<S>) {
        let Copies { worker: _, last_id, shared, changed, ended, complete: _ } = copies;
        self.last_id = last_id;
        self.shared.extend(shared);
        for CopiedAllocation { id, state, mut relays, session } in changed {
            let before = self.allocations.remove(&id).map(|before| before.relays);
            let mut before = before.unwrap_or_default();
            for relay in &mut relays {
                let known = before.iter_mut().find(|known| known.relay == relay.relay);
                relay.socket = relay.socket.take().or_else(|| known?.socket.take());
            }
            self.allocations.insert(id, KeptAllocation { state, relays, session });
        }
        for id in ended {
            self.allocations.remove(&id);
        }
    }

    /// Everything that is whole, for the next process, with all sockets. They stay here as well.
    #[must_use]
    pub fn copies(&self) -> Copies<&S> {
        let whole = self.allocations.iter().filter(|(_, one)| one.is_whole());
        let changed = whole.map(|(id, one)| CopiedAllocation {
            id: *id,
            state: one.state.clone(),
            relays: one.relays.iter().map(CopiedRelay::lend).collect(),
            session: one.session.clone(),
        });
        Copies {
            worker: self.last_id.worker(),
            last_id: self.last_id,
            shared: self.shared.iter().collect(),
            changed: changed.collect(),
            ended: Vec::new(),
            complete: true,
        }
    }
}

impl<S> CopiedRelay<S> {
    const fn lend(&self) -> CopiedRelay<&S> {
        let Self { relay, at, own, socket } = self;
        CopiedRelay { relay: *relay, at: *at, own: *own, socket: socket.as_ref() }
    }
}

impl<S> KeptAllocation<S> {
    /// Each relay that has a socket of its own came with it.
    fn is_whole(&self) -> bool {
        self.relays.iter().all(|relay| relay.own == relay.socket.is_some())
    }
}
