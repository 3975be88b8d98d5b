//! Limits of live allocations, from a decision that arrives after the Allocate.

use turn_types::{AllocationId, Instant};

use super::Server;
use crate::policy::GrantLimits;

impl Server {
    /// Narrows the limits of an allocation: peers and rate immediately, the lifetime from the next
    /// Refresh. Returns false if there is no such allocation.
    pub fn limit(&mut self, now: Instant, id: AllocationId, limits: &GrantLimits) -> bool {
        let Self { policy, state, .. } = self;
        let Some(slot) = state.allocations.of_id(id) else { return false };
        state.allocations.get_mut(slot).grant.limit(limits);
        state.allocations.apply(policy, now, slot, &mut state.outbox);
        true
    }
}
