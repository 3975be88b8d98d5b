//! Export of allocations to the successor, and import of the predecessor's.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use state_format::Reader;
use turn_types::{
    AllocationId, ClientPath, ConnectionId, FiveTuple, Now, SocketId, Transport, WorkerId,
};

use super::Server;
use super::state::State;
use crate::mobility::expected::ExpectedMove;
use crate::mobility::import::{AllocationCopy, AllocationImportError, ImportedAllocation};
use crate::mobility::reserved::ReservedPort;
use crate::mobility::worker_move::Departure;
use crate::store::Progress;

impl Server {
    /// Withdraws the routes of all allocations whose clients use these transports, before an
    /// export. Commands are to be carried out before, so that the traffic of routes
    /// is still counted.
    pub fn withdraw_all(&mut self, of: impl Fn(Transport) -> bool) {
        let State { allocations, outbox, .. } = &mut self.state;
        for slot in allocations.slots() {
            if of(allocations.get(slot).path.five_tuple.transport) {
                allocations.withdraw_routes(slot, outbox);
            }
        }
    }

    /// Sets the routes of all allocations again after they were [withdrawn](Self::withdraw_all).
    pub fn set_all_routes(&mut self, now: Now) {
        let State { allocations, outbox, .. } = &mut self.state;
        for slot in allocations.slots() {
            allocations.update_routes(&self.policy, now.instant, slot, outbox);
        }
    }

    /// Removes an exported allocation without ending it: the successor has it.
    pub fn remove(&mut self, id: AllocationId) -> Option<Departure> {
        let allocations = &mut self.state.allocations;
        let slot = allocations.of_id(id)?;
        Some(Departure::new(allocations.remove_whole(slot)))
    }

    /// Imports an allocation that the predecessor has [written](AllocationCopy::write), regardless
    /// of current quotas. Its relay sockets get other names. `socket_of` returns the number of the
    /// socket for a path of the client.
    ///
    /// # Errors
    /// The state is malformed, the allocation has expired, its address is not available, or there
    /// is no socket for its client. The import has no effects then.
    pub fn import(
        &mut self,
        now: Now,
        state: Reader<'_>,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) -> Result<ImportedAllocation, AllocationImportError> {
        let Self { policy, state: own } = self;
        own.moves().import(policy, now.instant, state, socket_of)
    }

    /// Returns the clients of allocations here that are expected at other workers (RFC 8016), by
    /// worker; after an import.
    #[must_use]
    pub fn expected_elsewhere(&mut self, now: Now) -> BTreeMap<WorkerId, Vec<ExpectedMove>> {
        let mut by_worker: BTreeMap<WorkerId, Vec<ExpectedMove>> = BTreeMap::new();
        for (worker, expected) in self.state.moves().expected_elsewhere(now.instant) {
            by_worker.entry(worker).or_default().push(expected);
        }
        by_worker
    }

    /// Expects a client of another worker's imported allocation here, unless `socket_of` has no
    /// socket for its path.
    pub fn expect(
        &mut self,
        now: Now,
        expected: ExpectedMove,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) {
        self.state.moves().expect(now.instant, expected, socket_of);
    }

    /// Writes the record of an allocation whose [import](Self::import) has failed; after the
    /// commit. `progress`: later progress than in the state.
    pub fn end_refused(
        &mut self,
        now: Now,
        state: Reader<'_>,
        error: AllocationImportError,
        progress: Option<Progress>,
    ) {
        self.state.moves().end_refused(now.instant, state, error, progress);
    }

    /// The ports that are kept for second Allocates (EVEN-PORT, RFC 8656 §7.2), of all workers that
    /// share the registry.
    #[must_use]
    pub fn reserved_ports(&self) -> Vec<ReservedPort> {
        self.state.registry.reserved(ReservedPort::of)
    }

    /// Keeps a port that another process has kept. If it is in use here, or of no relay address, or
    /// its time is over, it is not kept: its client is told so when it comes with its token.
    pub fn reserve_again(&mut self, now: Now, port: &ReservedPort) {
        let Self { policy, state } = self;
        state.reserve_again(policy, now.instant, port);
    }

    /// Keeps in mind which allocations change from now on, for copies elsewhere; all that there are
    /// count as changed. Without `on` it no longer does.
    pub fn keep_changes(&mut self, on: bool) {
        let allocations = &mut self.state.allocations;
        let all: Option<Vec<_>> = on.then(|| allocations.iter().map(|one| one.id).collect());
        allocations.changes.keep(all.map(Vec::into_iter));
    }

    /// Returns true while there are changes that were not [taken](Self::take_changed).
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.state.allocations.changes.is_empty()
    }

    /// Takes at most so many allocations that have begun, changed or ended; each once, however
    /// often it did. Traffic is no change.
    pub fn take_changed(&mut self, most: usize) -> impl Iterator<Item = AllocationId> {
        self.state.allocations.changes.take(most)
    }

    /// Progress of an allocation by its packets: its copies do not tell, unless something else has
    /// changed as well.
    #[must_use]
    pub fn progress(&self, id: AllocationId) -> Option<Progress> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| allocations.get(slot).progress())
    }

    /// A number that is another one when the [progress](Self::progress) of an allocation is; `None`
    /// of one that is gone.
    #[must_use]
    pub fn progress_count(&self, id: AllocationId) -> Option<u64> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| allocations.get(slot).progress_count())
    }

    /// Puts the progress of another process in the place of that of a copy.
    /// [`Self::carried_traffic`] stays the same: that process has counted the traffic.
    pub fn set_progress(&mut self, id: AllocationId, progress: Progress) {
        let Self { policy, state } = self;
        if let Some(slot) = state.allocations.of_id(id) {
            state.allocations.set_progress(slot, progress);
            let allocation = state.allocations.get_mut(slot);
            let rules = policy.of(&allocation.grant.realm);
            allocation.set_rate(allocation.grant.rate(rules.quotas.bytes_per_second));
        }
    }

    /// Reverts an [import](Self::import): the allocation has changed or ended in the predecessor.
    pub fn revert_import(&mut self, id: AllocationId) {
        let State { allocations, outbox, .. } = &mut self.state;
        if let Some(slot) = allocations.of_id(id) {
            allocations.withdraw_routes(slot, outbox);
        }
        // Its leases end with it.
        drop(self.remove(id));
    }

    /// Copies an allocation, unless it has ended.
    #[must_use]
    pub fn copy(&self, id: AllocationId) -> Option<AllocationCopy> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| AllocationCopy::of(allocations.get(slot)))
    }

    /// All connections with peers.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.state.allocations.connections().collect()
    }

    /// The client of the allocation that has this connection with a peer; `None`: none has it.
    #[must_use]
    pub fn client_of_connection(&self, id: ConnectionId) -> Option<FiveTuple> {
        let allocations = &self.state.allocations;
        let slot = allocations.of_connection(id)?;
        Some(allocations.get(slot).path.five_tuple)
    }

    /// Returns the last assigned id. The successor [skips](Self::skip_ids) all ids up to it.
    #[must_use]
    pub const fn last_id(&self) -> AllocationId {
        self.state.ids.last_allocation()
    }

    /// Skips the ids up to the last one that the same worker of the predecessor has assigned.
    pub const fn skip_ids(&mut self, last: AllocationId) {
        self.state.ids.skip_to(last);
    }
}
