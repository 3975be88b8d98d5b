//! Allocate (RFC 8656 §7.2). The checks follow the RFC's order. A request that passes all checks
//! waits for relay sockets (see [`super::open_relay`]). The success response is written only when
//! the sockets are open.
//!
//! The RFC permits steps 10 (quota) and 11 (redirection) at any point. Here these steps are last,
//! but before a reservation is redeemed. A refusal then does not cost the client its reservation
//! token.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use stun_wire::{AttributeType, MessageBuilder, reason_phrase};
use turn_types::{FiveTuple, Instant, Prefix, RelayProtocol};

use crate::credentials::Grant;
use crate::io::{
    AllocateRequest, Authenticated, Refusal, ReplyBuffer, Request, ShareHolder, Verdict,
    whole_seconds,
};
use crate::policy::{Policy, RealmRules, is_tunnel};
use crate::random::Random;
use crate::store::{
    Account, Allocation, AllocationQuota, Allocations, ExpectedClients, Ids, Outbox, Pending,
    PendingAllocation, QuotaLease, RegistryHandle, Slot, Wait,
};

/// Stores used by Allocate.
#[derive(Debug)]
pub(crate) struct Allocate<'a> {
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) pending: &'a mut Pending,
    pub(crate) expected: &'a ExpectedClients,
    pub(crate) registry: &'a RegistryHandle,
    /// Time of the next sweep of expired reservations.
    pub(crate) sweep_at: &'a mut Option<Instant>,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) ids: &'a mut Ids,
    pub(crate) random: &'a mut Random,
}

impl Allocate<'_> {
    pub(crate) fn handle(
        &mut self,
        own: &Authenticated<'_>,
        draining: bool,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, grant, responder, .. } = *own;
        let Request { policy, rules, now, path, .. } = request;
        let client = path.five_tuple.client;
        if let Some(slot) = self.allocations.live_slot(now.instant, &path.five_tuple, self.outbox) {
            return self.answer_again(own, slot, reply);
        }
        if self.pending.is_opening(&path.five_tuple)
            || self.pending.is_moving(&path.five_tuple)
            || self.expected.get(&path.five_tuple, now.instant).is_some()
        {
            return Err(Refusal::AllocationExists);
        }
        if is_tunnel(client.ip()) {
            return Err(Refusal::TunnelClient);
        }
        let wanted = AllocateRequest::read(policy, path, &request.message)?;
        // The response with ALTERNATE-SERVER needs integrity (RFC 8489 §14.8), so an open relay
        // does not redirect.
        if responder.has_integrity() && rules.alternates.for_client(&path.five_tuple).is_some() {
            return Err(Refusal::Redirected);
        }
        if draining {
            return Err(Refusal::Draining);
        }
        self.pending
            .check(Wait::Other, &grant.claimant(client))
            .map_err(|_| Refusal::SystemExhausted)?;
        let quota = take_quota(self.registry, (policy, rules), grant, &path.five_tuple)?;
        // Connections with peers are joined to the client's connections, which cannot move.
        let may_move = policy.mobility && wanted.kept.protocol == RelayProtocol::Udp;
        if wanted.mobile && !(may_move && responder.has_integrity()) {
            return Err(Refusal::MobilityForbidden);
        }
        let lifetime = grant.at_most(rules.lifetimes.granted(wanted.lifetime), now.unix);
        let allocation = PendingAllocation {
            responder: responder.clone(),
            arrived: request.arrived,
            grant: grant.clone(),
            lifetime,
            quota,
            wanted,
            sockets: Default::default(),
            taken: Vec::new(),
        };
        if rules.auth.authorizer.is_some() && !grant.is_anonymous() {
            self.ask_authorizer(now.instant, allocation)?;
        } else {
            self.claim_ports(policy, now.instant, allocation)?;
        }
        Ok(Verdict::Wait)
    }

    /// Responds to an Allocate on a 5-tuple that has an allocation. A retransmission of the
    /// Allocate that created the allocation gets the original response (RFC 8489 §6.3.1).
    fn answer_again(
        &self,
        own: &Authenticated<'_>,
        slot: Slot,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let allocation = self.allocations.get(slot);
        let same_transaction = allocation.transaction == responder.transaction;
        if !same_transaction || Some(&allocation.grant.user) != responder.user.as_ref() {
            return Err(Refusal::AllocationExists);
        }
        let now = request.now.instant;
        let left = allocation.expires().unwrap_or(now).saturating_since(now);
        Ok(responder.success(reply, |builder| {
            write_allocation(builder, allocation, left);
        }))
    }
}

/// Takes a slot for an allocation in the quotas of account, customer, realm and server.
pub(super) fn take_quota(
    registry: &RegistryHandle,
    (policy, rules): (&Policy, RealmRules<'_>),
    grant: &Grant,
    five_tuple: &FiveTuple,
) -> Result<QuotaLease, Refusal> {
    let quota = allocation_quota(policy, rules, grant);
    let customer = Prefix::customer(five_tuple.client.ip());
    registry.take_quota(account_of(grant), customer, five_tuple.transport, quota)
}

/// Returns the holder of the full share that caused a refusal, for the operator. `None` for other
/// reasons.
pub(crate) fn share_holder(
    registry: &RegistryHandle,
    (policy, rules): (&Policy, RealmRules<'_>),
    grant: &Grant,
    customer: Prefix,
    reason: Refusal,
) -> Option<ShareHolder> {
    let is_share =
        matches!(reason, Refusal::PortsShare | Refusal::QuotaShare | Refusal::ConnectionShare);
    if !is_share {
        return None;
    }
    registry.share_holder(account_of(grant), customer, &allocation_quota(policy, rules, grant))
}

fn account_of(grant: &Grant) -> Account {
    Account { realm: grant.realm.clone(), name: Arc::clone(&grant.account) }
}

/// Returns the limits of an allocation for the grant.
fn allocation_quota(policy: &Policy, rules: RealmRules<'_>, grant: &Grant) -> AllocationQuota {
    AllocationQuota {
        per_account: grant.allocations(rules.quotas.allocations_per_user),
        per_realm: rules.allocations_max,
        per_customer: policy.quotas.allocations_per_customer,
        total: policy.quotas.allocations_total,
        rate: grant.rate(rules.quotas.bytes_per_second),
        realm_rate: rules.bytes_per_second_max,
        total_rate: policy.quotas.bytes_per_second_total,
    }
}

/// Appends the attributes of a success response to Allocate (RFC 8656 §7.2).
pub(crate) fn write_allocation(
    builder: &mut MessageBuilder<'_>,
    allocation: &Allocation,
    lifetime: Duration,
) {
    for (socket, relayed) in allocation.sockets.iter().zip(&allocation.relayed) {
        if let (Some(_), Some(relayed)) = (socket, relayed) {
            builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, relayed.0);
        }
    }
    builder.lifetime(whole_seconds(lifetime));
    let client = allocation.path.five_tuple.client;
    builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, client.0);
    if let Some(token) = allocation.token {
        builder.reservation_token(token);
    }
    if let Some(mobility) = &allocation.mobility {
        builder.mobility_ticket(mobility.ticket.as_bytes());
    }
    if let Some((family, reason)) = allocation.address_error {
        let code = reason.code();
        builder.address_error_code(family.wire(), code, reason_phrase(code));
    }
}
