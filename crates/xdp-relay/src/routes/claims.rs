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
    /// Claims the slot of a flow for its client, before the flow is [set](Self::set) or its peer's
    /// datagrams are [delivered](Self::deliver_to_ring). A flow keeps the share until it is removed
    /// or withdrawn.
    ///
    /// # Errors
    /// The table is full, or the client has its share of scarce slots.
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

    /// Finds silent ones among the next ring routes: one word is read for each.
    pub(super) fn find_silent_ring_routes(&mut self, now: Instant, routes_max: usize) {
        let after = self.ring_visited.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut routes = self.ring_routes.range((after, Bound::Unbounded));
        for (id, route) in routes.by_ref().take(routes_max) {
            // A flow in use has a proof that is renewed, or not older than its last datagram.
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

    /// Takes a flow that the last part of a sweep found silent while slots are scarce. The caller
    /// removes or withdraws it, which frees the slot.
    pub fn pop_silent(&mut self) -> Option<FlowId> {
        self.silent.pop()
    }
}
