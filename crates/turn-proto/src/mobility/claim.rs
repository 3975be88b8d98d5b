//! Claim of an allocation by ticket, at the worker that has the allocation.

use turn_types::{FiveTuple, Now};

use super::path::mobile_slot;
use crate::credentials::TicketBody;
use crate::io::{Granted, Refusal, ReplyBuffer, Responder, TicketRefresh, Verdict, whole_seconds};
use crate::policy::Policy;
use crate::store::{Allocation, Allocations, Answered, Outbox, Slot};
use stun_wire::TransactionId;

/// Refreshes an allocation by ticket, and creates the next ticket. The caller records where the
/// client is expected.
pub(super) fn claim(
    policy: &Policy,
    now: Now,
    refresh: &TicketRefresh,
    allocations: &mut Allocations,
    outbox: &mut Outbox,
) -> Result<(Slot, Granted), Refusal> {
    let TicketRefresh { ticket, grant, request, five_tuple, transaction } = refresh;
    let slot = mobile_slot(allocations, now.instant, ticket.allocation);
    let slot = slot.ok_or(Refusal::BadTicket)?;
    let allocation = allocations.get(slot);
    if !allocation.grant.may_be_moved_by(grant) {
        return Err(Refusal::WrongUser);
    }
    if let Some(granted) = answered(allocation, five_tuple, *transaction) {
        return Ok((slot, granted));
    }
    let TicketBody { allocation: id, serial } = *ticket;
    let valid = allocation.mobility.as_ref().is_some_and(|held| held.accepts(serial, five_tuple));
    if !valid {
        return Err(Refusal::BadTicket);
    }
    // A client may always delete its allocation, so no quota is checked.
    if request.lifetime != Some(0) {
        let most = policy.quotas.allocations_per_customer;
        allocations.get_mut(slot).quota.expect_at(five_tuple, most)?;
    }
    let lifetime = allocations.refresh(policy, now, slot, grant, *request, outbox)?;
    let lifetime = whole_seconds(lifetime);
    // The Refresh may have ended the allocation, or removed one relayed address.
    if allocations.of_id(id).is_none() {
        return Ok((slot, Granted { lifetime, ticket: None }));
    }
    let Some(mobility) = &mut allocations.get_mut(slot).mobility else {
        return Err(Refusal::BadTicket);
    };
    mobility.renew(&policy.ticket_key);
    let (five_tuple, transaction) = (*five_tuple, *transaction);
    mobility.answered = Some(Answered { five_tuple, transaction, serial, lifetime });
    Ok((slot, Granted { lifetime, ticket: Some(mobility.ticket) }))
}

/// Returns the response to the last Refresh by ticket, for a retransmission of that Refresh.
pub(super) fn answered(
    allocation: &Allocation,
    five_tuple: &FiveTuple,
    transaction: TransactionId,
) -> Option<Granted> {
    let mobility = allocation.mobility.as_ref()?;
    let answered = mobility.answered?;
    (answered.five_tuple == *five_tuple && answered.transaction == transaction)
        .then_some(Granted { lifetime: answered.lifetime, ticket: Some(mobility.ticket) })
}

/// Writes the response to a Refresh by ticket.
pub(super) fn respond(responder: &Responder, granted: Granted, reply: &mut ReplyBuffer) -> Verdict {
    responder.success(reply, |builder| {
        builder.lifetime(granted.lifetime);
        if let Some(ticket) = &granted.ticket {
            builder.mobility_ticket(ticket.as_bytes());
        }
    })
}
