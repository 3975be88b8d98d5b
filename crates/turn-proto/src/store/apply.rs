//! Application of a policy to all allocations by a [`Review`](super::review::Review), or to a
//! single allocation.

use alloc::collections::BTreeSet;

use turn_types::Instant;

use super::allocation::Allocation;
use super::allocations::{Allocations, Slot};
use super::outbox::Outbox;
use crate::io::{Command, EndReason};
use crate::limits::JUDGED_PER_PART;
use crate::policy::Policy;
use crate::policy::peers::{is_reachable_by_tcp, judge_again};

impl Allocations {
    /// Returns true if the current policy has judged an allocation.
    pub(crate) fn is_reviewed(&self, slot: Slot) -> bool {
        self.get(slot).revision == self.review.revision
    }

    /// Returns the time since which the next part of a review is due.
    pub(crate) const fn review_due(&self) -> Option<Instant> {
        self.review.started
    }

    /// Starts the review by a new policy, and performs the first part.
    pub(crate) fn start_review(&mut self, policy: &Policy, now: Instant, outbox: &mut Outbox) {
        let review = &mut self.review;
        review.revision = review.revision.next();
        review.started = Some(now);
        review.all.start();
        if self.has_routes() {
            self.review.routed.start();
        }
        self.judge_connections(policy, outbox);
        self.continue_review(policy, now, outbox);
        if self.review.routed.is_running && !self.review.suspends_routes {
            self.review.suspends_routes = true;
            outbox.command(Command::SuspendRoutes);
        }
    }

    /// Performs the next part of a review.
    pub(crate) fn continue_review(&mut self, policy: &Policy, now: Instant, outbox: &mut Outbox) {
        let mut judged = 0;
        while judged < JUDGED_PER_PART {
            let Some((slot, wanted)) = self.next_to_review() else {
                self.review.started = None;
                break;
            };
            judged += 1;
            if wanted {
                judged += self.get(slot).judgements();
                self.apply(policy, now, slot, outbox);
            }
        }
        if self.review.suspends_routes && !self.review.routed.is_running {
            self.review.suspends_routes = false;
            outbox.command(Command::ResumeRoutes);
        }
    }

    /// Returns the next allocation of the review. The boolean is true if the allocation must be
    /// judged.
    fn next_to_review(&mut self) -> Option<(Slot, bool)> {
        let Self { review, by_id, .. } = self;
        if let Some(slot) = review.routed.next(by_id) {
            let has_route = self.get(slot).channels.iter().any(|channel| channel.route.is_some());
            return Some((slot, has_route && !self.is_reviewed(slot)));
        }
        let slot = review.all.next(by_id)?;
        Some((slot, !self.is_reviewed(slot)))
    }

    /// Applies a policy to an allocation after a change of the policy or the allocation. Removes
    /// relay sockets at unknown addresses, and permissions, channels and connections of forbidden
    /// peers.
    pub(crate) fn apply(&mut self, policy: &Policy, now: Instant, slot: Slot, outbox: &mut Outbox) {
        let revision = self.revision();
        let allocation = self.get_mut(slot);
        allocation.revision = revision;
        if allocation.grant.is_revoked(&policy.revoked) {
            self.end(slot, now, EndReason::Revoked, outbox);
            return;
        }
        let stays = |ip| policy.relays_from(ip);
        if !allocation.sockets.iter().flatten().any(|socket| stays(socket.local.ip())) {
            self.end(slot, now, EndReason::RelayAddressRemoved, outbox);
            return;
        }
        let rules = policy.of(&allocation.grant.realm);
        allocation.set_rate(allocation.grant.rate(rules.quotas.bytes_per_second));
        let limits = allocation.grant.limits.clone();
        let judge = |ip| judge_again(policy, rules, limits.as_deref(), ip);
        self.judge_peers(slot, outbox, judge);
        self.retain_sockets(slot, outbox, |ip, _| stays(ip));
        self.retain_connections(slot, outbox, |connection| {
            let peer = connection.peer;
            judge(peer.ip()).is_some_and(|own| is_reachable_by_tcp(&own, peer.port()))
        });
        self.update_routes(policy, now, slot, outbox);
        self.arm(slot);
    }

    /// Closes connections to peers that a policy denies. Connections cannot wait for the review,
    /// because bytes of connections bypass the packet path.
    fn judge_connections(&mut self, policy: &Policy, outbox: &mut Outbox) {
        let slots: BTreeSet<Slot> = self.by_connection.values().map(|(slot, _)| *slot).collect();
        for slot in slots {
            let allocation = self.get(slot);
            let denied: BTreeSet<_> = allocation
                .connections
                .iter()
                .filter(|connection| {
                    let peer = connection.peer;
                    let own = allocation.judge(policy, peer.ip());
                    !own.is_some_and(|own| is_reachable_by_tcp(&own, peer.port()))
                })
                .map(|connection| connection.id)
                .collect();
            self.retain_connections(slot, outbox, |connection| !denied.contains(&connection.id));
        }
    }
}

impl Allocation {
    /// Returns the number of judgements in the review of this allocation.
    fn judgements(&self) -> usize {
        self.permissions.len() + self.channels.len() + self.connections.len()
    }
}
