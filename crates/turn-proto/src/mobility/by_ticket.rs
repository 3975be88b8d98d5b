//! Refresh by mobility ticket (RFC 8016 §3.2): refreshes an allocation like any Refresh, and
//! permits another 5-tuple for the client. The response contains the next ticket, and the used
//! ticket becomes void. A retransmission of the request still gets its response.

use stun_wire::{AttributeType, Message, Method};

use super::Moves;
use super::claim::{answered, claim, respond};
use crate::credentials::{Ticket, TicketBody};
use crate::io::{
    Authenticated, RefreshRequest, Refusal, ReplyBuffer, Responder, TicketRefresh, Verdict,
};
use crate::policy::Policy;
use crate::store::{Next, Slot};

impl Moves<'_> {
    /// Handles a Refresh on a 5-tuple that has no allocation.
    pub(crate) fn refresh_from_elsewhere(
        &mut self,
        own: &Authenticated<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let Some(value) = request.message.first(AttributeType::MOBILITY_TICKET) else {
            return Err(Refusal::NoAllocation);
        };
        let refresh = read(own, read_ticket(request.policy, responder, value)?)?;
        let id = refresh.ticket.allocation;
        let worker = self.registry.location_of(id).ok_or(Refusal::BadTicket)?;
        // An allocation between two workers is requested again later, from the worker that then has
        // it.
        if worker != self.ids.worker() || self.allocations.of_id(id).is_none() {
            return self.ask_worker(worker, &request, refresh, responder);
        }
        if self.pending.is_opening(&refresh.five_tuple) {
            return Err(Refusal::AllocationExists);
        }
        let (policy, now) = (request.policy, request.now);
        let (slot, granted) = claim(policy, now, &refresh, self.allocations, self.outbox)?;
        if granted.ticket.is_some() {
            self.allocations.expect_at(slot, Next::Here(*request.path));
        }
        Ok(respond(responder, granted, reply))
    }

    /// Handles a Refresh by ticket on the 5-tuple of an allocation. The ticket must belong to this
    /// allocation.
    pub(crate) fn refresh_by_own_ticket(
        &mut self,
        own: &Authenticated<'_>,
        slot: Slot,
        value: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, responder, .. } = *own;
        let ticket = read_ticket(request.policy, responder, value)?;
        if ticket.allocation != self.allocations.get(slot).id {
            return Err(Refusal::AllocationExists);
        }
        let refresh = read(own, ticket)?;
        let (policy, now) = (request.policy, request.now);
        let (_, granted) = claim(policy, now, &refresh, self.allocations, self.outbox)?;
        Ok(respond(responder, granted, reply))
    }

    /// Repeats the response to a retransmitted Refresh by ticket on the 5-tuple of an allocation.
    pub(crate) fn answer_again(
        &self,
        own: &Authenticated<'_>,
        slot: Slot,
        reply: &mut ReplyBuffer,
    ) -> Option<Verdict> {
        let Authenticated { request, responder, .. } = *own;
        let five_tuple = &request.path.five_tuple;
        let allocation = self.allocations.get(slot);
        let granted = answered(allocation, five_tuple, responder.transaction)?;
        Some(respond(responder, granted, reply))
    }

    /// Handles an authenticated request on a 5-tuple where a client is or may be expected. A
    /// retransmission gets its response again, and any other request waits for the allocation.
    /// `None` for any other 5-tuple.
    pub(crate) fn handle_before_arrival(
        &mut self,
        own: &Authenticated<'_>,
        has_waited: bool,
        reply: &mut ReplyBuffer,
    ) -> Option<Result<Verdict, Refusal>> {
        let Authenticated { request, grant, responder, .. } = *own;
        let five_tuple = &request.path.five_tuple;
        if let Some(client) = self.expected.get(five_tuple, request.now.instant) {
            if !client.grant.is_same_user(grant) {
                return Some(Err(Refusal::WrongUser));
            }
            if client.transaction == Some(responder.transaction) {
                return Some(Ok(respond(responder, client.granted, reply)));
            }
        } else if !self.pending.is_moving(five_tuple) {
            return None;
        }
        Some(Ok(self.queue_request(&request, has_waited)))
    }
}

/// Returns true for a Refresh by a ticket of this server. The ticket does not authenticate the
/// sender.
pub(crate) fn is_by_ticket(policy: &Policy, message: &Message<'_>) -> bool {
    let ticket = message.first(AttributeType::MOBILITY_TICKET);
    policy.mobility
        && message.method() == Method::REFRESH
        && ticket.is_some_and(|value| Ticket::open(&policy.ticket_key, value).is_some())
}

fn read(own: &Authenticated<'_>, ticket: TicketBody) -> Result<TicketRefresh, Refusal> {
    let Authenticated { request, grant, responder, .. } = *own;
    Ok(TicketRefresh {
        ticket,
        request: RefreshRequest::read(&request.message)?,
        grant: grant.clone(),
        five_tuple: request.path.five_tuple,
        transaction: responder.transaction,
    })
}

fn read_ticket(
    policy: &Policy,
    responder: &Responder,
    value: &[u8],
) -> Result<TicketBody, Refusal> {
    // Without integrity a ticket would be a credential (RFC 8016 §6).
    if !policy.mobility || !responder.has_integrity() {
        return Err(Refusal::MobilityForbidden);
    }
    Ticket::open(&policy.ticket_key, value).ok_or(Refusal::BadTicket)
}
