//! Export of allocations to the successor, and import of allocations from the predecessor.

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
    /// Withdraws the routes of all allocations whose clients use the transports selected by `of`,
    /// before an export. The caller must execute the commands before the export, to count the
    /// routes' last traffic.
    pub fn withdraw_all(&mut self, of: impl Fn(Transport) -> bool) {
        let State { allocations, outbox, .. } = &mut self.state;
        for slot in allocations.slots() {
            if of(allocations.get(slot).path.five_tuple.transport) {
                allocations.withdraw_routes(slot, outbox);
            }
        }
    }

    /// Sets the routes of all allocations again after [`Self::withdraw_all`].
    pub fn set_all_routes(&mut self, now: Now) {
        let State { allocations, outbox, .. } = &mut self.state;
        for slot in allocations.slots() {
            allocations.update_routes(&self.policy, now.instant, slot, outbox);
        }
    }

    /// Removes an exported allocation without ending the session. The successor has the allocation.
    pub fn remove(&mut self, id: AllocationId) -> Option<Departure> {
        let allocations = &mut self.state.allocations;
        let slot = allocations.of_id(id)?;
        Some(Departure::new(allocations.remove_whole(slot)))
    }

    /// Imports an allocation [written](AllocationCopy::write) by the predecessor, regardless of
    /// current quotas. The relay sockets get other names. `socket_of` returns the number of the
    /// socket for a path of the client.
    ///
    /// # Errors
    /// The state is malformed, or the allocation has expired or already exists. Other causes are an
    /// unavailable relay address or port, and a client without a socket. The import then has no
    /// effects.
    pub fn import(
        &mut self,
        now: Now,
        state: Reader<'_>,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) -> Result<ImportedAllocation, AllocationImportError> {
        let Self { policy, state: own } = self;
        own.moves().import(policy, now.instant, state, socket_of)
    }

    /// Returns, by worker, the clients of this server's allocations that are expected at other
    /// workers (RFC 8016). Called after an import.
    #[must_use]
    pub fn expected_elsewhere(&mut self, now: Now) -> BTreeMap<WorkerId, Vec<ExpectedMove>> {
        let mut by_worker: BTreeMap<WorkerId, Vec<ExpectedMove>> = BTreeMap::new();
        for (worker, expected) in self.state.moves().expected_elsewhere(now.instant) {
            by_worker.entry(worker).or_default().push(expected);
        }
        by_worker
    }

    /// Expects a client of another worker's imported allocation at this server. Does nothing if
    /// `socket_of` has no socket for the client's path.
    pub fn expect(
        &mut self,
        now: Now,
        expected: ExpectedMove,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) {
        self.state.moves().expect(now.instant, expected, socket_of);
    }

    /// Writes the session record of an allocation whose [import](Self::import) has failed. Called
    /// after the commit. `progress` is later progress than in the state.
    pub fn end_refused(
        &mut self,
        now: Now,
        state: Reader<'_>,
        error: AllocationImportError,
        progress: Option<Progress>,
    ) {
        self.state.moves().end_refused(now.instant, state, error, progress);
    }

    /// Returns the ports reserved for second Allocates (EVEN-PORT, RFC 8656 §7.2), of all workers
    /// that share the registry.
    #[must_use]
    pub fn reserved_ports(&self) -> Vec<ReservedPort> {
        self.state.registry.reserved(ReservedPort::of)
    }

    /// Reserves a port that another process had reserved. The port is not reserved if it is in use,
    /// belongs to no relay address, or its reservation has expired. A later Allocate with its token
    /// is then refused.
    pub fn reserve_again(&mut self, now: Now, port: &ReservedPort) {
        let Self { policy, state } = self;
        state.reserve_again(policy, now.instant, port);
    }

    /// Starts or stops recording changed allocations, for copies in other processes. At the start
    /// all existing allocations are marked as changed.
    pub fn keep_changes(&mut self, on: bool) {
        let allocations = &mut self.state.allocations;
        let all: Option<Vec<_>> = on.then(|| allocations.iter().map(|one| one.id).collect());
        allocations.changes.keep(all.map(Vec::into_iter));
    }

    /// Returns true while there are changes not yet returned by [`Self::take_changed`].
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.state.allocations.changes.is_empty()
    }

    /// Takes at most `most` allocations that have started, changed or ended. Each allocation is
    /// returned once for all its changes. Traffic causes no change.
    pub fn take_changed(&mut self, most: usize) -> impl Iterator<Item = AllocationId> {
        self.state.allocations.changes.take(most)
    }

    /// Returns the packet-driven progress of an allocation. Copies of the allocation have this
    /// progress only from the time of their last other change.
    #[must_use]
    pub fn progress(&self, id: AllocationId) -> Option<Progress> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| allocations.get(slot).progress())
    }

    /// Returns a number that changes whenever the [progress](Self::progress) of an allocation
    /// changes. `None` for an unknown id.
    #[must_use]
    pub fn progress_count(&self, id: AllocationId) -> Option<u64> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| allocations.get(slot).progress_count())
    }

    /// Replaces the progress of a copied allocation with the progress from the other process.
    /// [`Self::carried_traffic`] is unchanged, because the other process has counted that traffic.
    pub fn set_progress(&mut self, id: AllocationId, progress: Progress) {
        let Self { policy, state } = self;
        if let Some(slot) = state.allocations.of_id(id) {
            state.allocations.set_progress(slot, progress);
            let allocation = state.allocations.get_mut(slot);
            let rules = policy.of(&allocation.grant.realm);
            allocation.set_rate(allocation.grant.rate(rules.quotas.bytes_per_second));
        }
    }

    /// Reverts an [import](Self::import), because the allocation has changed or ended in the
    /// predecessor.
    pub fn revert_import(&mut self, id: AllocationId) {
        let State { allocations, outbox, .. } = &mut self.state;
        if let Some(slot) = allocations.of_id(id) {
            allocations.withdraw_routes(slot, outbox);
        }
        // Dropping the allocation releases its leases.
        drop(self.remove(id));
    }

    /// Copies an allocation. `None` for an ended allocation.
    #[must_use]
    pub fn copy(&self, id: AllocationId) -> Option<AllocationCopy> {
        let allocations = &self.state.allocations;
        allocations.of_id(id).map(|slot| AllocationCopy::of(allocations.get(slot)))
    }

    /// Returns all connections with peers.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.state.allocations.connections().collect()
    }

    /// Returns the client of the allocation that has this connection with a peer. `None`: no
    /// allocation has the connection.
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

    /// Skips the ids up to the last id assigned by this worker's counterpart in the predecessor.
    pub const fn skip_ids(&mut self, last: AllocationId) {
        self.state.ids.skip_to(last);
    }
}
