//! Review of all allocations after a change of the policy, in parts of bounded work.
//!
//! A policy takes effect immediately, for any number of permissions. Each allocation has the
//! revision of the policy that last judged the allocation. Before the review of an allocation with
//! an older revision, the packet path judges the peer of each packet (`relay.rs`), and no route is
//! installed. The review removes denied permissions, and stores the other judgements.
//!
//! Two kinds of traffic do not pass the packet path. The first part of the review judges all
//! connections with peers (RFC 6062), at most [`CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX).
//! [`Command::SuspendRoutes`](crate::Command::SuspendRoutes) stops relaying by routes until the
//! first round has judged all allocations with routes. The second round visits the other
//! allocations.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use turn_types::{AllocationId, Instant};

/// Revision of a policy, counted by the server that applies the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyRevision(u32);

impl PolicyRevision {
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Progress of the review.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// Revision of the current policy.
    pub(super) revision: PolicyRevision,
    /// Start of the review; `None` once all allocations are reviewed.
    pub(super) started: Option<Instant>,
    /// Round that judges only the allocations with routes.
    pub(super) routed: Round,
    /// Round that judges all allocations.
    pub(super) all: Round,
    /// True while the driver relays by no route.
    pub(super) suspends_routes: bool,
}

/// Round through all allocations, sorted by id.
///
/// A new round starts where the last round was interrupted. Frequent changes of the policy
/// therefore skip no allocation.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) is_running: bool,
    /// Allocation that was visited last.
    after: Option<AllocationId>,
    /// Allocation that was visited last when the round started.
    started_after: Option<AllocationId>,
    has_wrapped: bool,
}

impl Round {
    pub(super) fn start(&mut self) {
        self.is_running = true;
        self.started_after = self.after;
        self.has_wrapped = false;
    }

    /// Returns the slot of the next allocation; `None` at the end of the round.
    pub(super) fn next<Slot: Copy>(
        &mut self,
        by_id: &BTreeMap<AllocationId, Slot>,
    ) -> Option<Slot> {
        while self.is_running {
            let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
            let next = by_id.range((from, Bound::Unbounded)).next();
            let next = next.filter(|(id, _)| !self.has_wrapped || Some(**id) <= self.started_after);
            if let Some((&id, &slot)) = next {
                self.after = Some(id);
                return Some(slot);
            }
            self.is_running = self.started_after.is_some() && !self.has_wrapped;
            self.has_wrapped = true;
            self.after = None;
        }
        None
    }
}
