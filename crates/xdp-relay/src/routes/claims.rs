//! Slots of a worker's flows: claimed for clients, released by silent flows.

use std::collections::hash_map;
use std::ops::Bound;

use fair_share::Claimant;
use linux_net::Clock;
use turn_types::Instant;

use super::{FlowId, Routes};
use crate::error::KernelPathError;
use crate::limits::SILENT_AFTER;

impl Routes {
    /// Claims a slot for a flow's client. The caller must claim before [`set`](Self::set) or
    /// [`deliver_to_ring`](Self::deliver_to_ring). A flow keeps the share until the flow is removed
    /// or withdrawn.
    ///
    /// # Errors
    /// The table is full, or slots are scarce and the client has used the full share.
    pub fn claim(
        &mut self,
        now: Instant,
        id: FlowId,
        claimant: &Claimant<'_>,
    ) -> Result<(), KernelPathError> {
        if let hash_map::Entry::Vacant(entry) = self.shares.entry(id) {
            entry.insert(self.common.shares.claim(now, claimant)?);
        }
        Ok(())
    }

    pub(super) fn release(&mut self, id: FlowId) {
        if let Some(share) = self.shares.remove(&id) {
            self.common.shares.release(Clock::instant(), share);
        }
    }

    /// Finds silent flows among the next ring routes. One word is read for each route.
    pub(super) fn find_silent_ring_routes(&mut self, now: Instant, routes_max: usize) {
        let after = self.ring_visited.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut routes = self.ring_routes.range((after, Bound::Unbounded));
        for (id, route) in routes.by_ref().take(routes_max) {
            // A flow in use has a proof that is renewed, or that is not older than the last
            // datagram.
            let (proven, _) = self.common.entries.proof(route.pair.to_client());
            if Instant::from_nanos(proven).max(route.since) + SILENT_AFTER <= now {
                self.silent.push(*id);
            }
            self.ring_visited = Some(*id);
        }
        if routes.next().is_none() {
            self.ring_visited = None;
        }
    }

    /// Returns a flow that the last part of a sweep found silent while slots were scarce. The
    /// caller must remove or withdraw the flow, which frees the slot.
    pub fn pop_silent(&mut self) -> Option<FlowId> {
        self.silent.pop()
    }
}
