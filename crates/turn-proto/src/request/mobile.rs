//! Refresh by a mobility ticket (RFC 8016 §3.2): prolongs an allocation as any Refresh does, and lets its
//! client have another 5-tuple. The answer has the next ticket; the one that was shown is void, but for
//! the same request come again, which is answered again.

use stun_wire::{AttributeType, Message, Method, TransactionId};
use turn_types::{FiveTuple, Now};

use super::allocate::seconds;
use super::refresh::Wish;
use super::{OwnRequest, Request};
use crate::answer::Responder;
use crate::auth::Authenticated;
use crate::mobility::{Answered, Next};
use crate::notice::Refusal;
use crate::policy::Policy;
use crate::registry;
use crate::state::State;
use crate::table::Slot;
use crate::ticket::{Ticket, TicketBody};
use crate::verdict::{ReplyBuffer, Verdict};

/// A Refresh by ticket, as far as it concerns the allocation.
#[derive(Clone, Debug)]
pub(crate) struct Resumption {
    pub(crate) ticket: TicketBody,
    pub(crate) who: Authenticated,
    pub(crate) wish: Wish,
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
}

/// What a Refresh by ticket is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// LIFETIME.
    pub(crate) lifetime: u32,
    /// The next ticket; none if that was the end.
    pub(crate) ticket: Option<Ticket>,
}

impl State {
    /// A Refresh by ticket on a 5-tuple that has no allocation.
    pub(crate) fn refresh_from_elsewhere(
        &mut self,
        request: &Request<'_>,
        who: Authenticated,
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Request { policy, now, path, message } = *request;
        let Some(shown) = message.first(AttributeType::MOBILITY_TICKET) else {
            return Err(Refusal::NoAllocation);
        };
        let ticket = read_ticket(policy, responder, shown)?;
        let wish = Wish::read(&message)?;
        let home =
            registry::home_of(&self.registry, ticket.allocation).ok_or(Refusal::BadTicket)?;
        let five_tuple = path.five_tuple;
        let resumption =
            Resumption { ticket, who, wish, five_tuple, transaction: responder.transaction };
        // One that has left and has not arrived is asked for again, wherever it is by then.
        if home != self.worker || self.table.of_id(ticket.allocation).is_none() {
            return self.ask_worker(home, request, resumption, responder);
        }
        if self.pending.is_opening(&five_tuple) {
            return Err(Refusal::AllocationExists);
        }
        let (slot, granted) = self.claim_by_ticket(policy, now, &resumption)?;
        if granted.ticket.is_some() {
            self.table.expect_at(slot, Next::Here(*path));
        }
        Ok(write(policy, responder, granted, reply))
    }

    /// A Refresh by ticket on the 5-tuple of an allocation, which must be that of the ticket.
    pub(crate) fn refresh_by_own_ticket(
        &mut self,
        own: &OwnRequest<'_>,
        shown: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Request { policy, now, path, message } = own.request;
        let ticket = read_ticket(policy, own.responder, shown)?;
        if ticket.allocation != self.table.get(own.slot).id {
            return Err(Refusal::AllocationExists);
        }
        let resumption = Resumption {
            ticket,
            who: own.who.clone(),
            wish: Wish::read(&message)?,
            five_tuple: path.five_tuple,
            transaction: own.responder.transaction,
        };
        let (_, granted) = self.claim_by_ticket(policy, now, &resumption)?;
        Ok(write(policy, own.responder, granted, reply))
    }

    /// What a Refresh by ticket does at the worker that has the allocation: all but saying where its
    /// client will be.
    pub(crate) fn claim_by_ticket(
        &mut self,
        policy: &Policy,
        now: Now,
        resumption: &Resumption,
    ) -> Result<(Slot, Granted), Refusal> {
        let slot = self.mobile_slot(now.instant, resumption.ticket.allocation);
        let slot = slot.ok_or(Refusal::BadTicket)?;
        if !self.table.get(slot).credentials.may_be_moved_by(&resumption.who) {
            return Err(Refusal::WrongUser);
        }
        if let Some((lifetime, ticket)) =
            self.is_answered(slot, &resumption.five_tuple, resumption.transaction)
        {
            return Ok((slot, Granted { lifetime, ticket: Some(ticket) }));
        }
        if !self.is_good(slot, resumption) {
            return Err(Refusal::BadTicket);
        }
        let lifetime =
            self.refresh_allocation(policy, now, slot, (&resumption.who, resumption.wish))?;
        let lifetime = seconds(lifetime);
        // A Refresh may have been its end, or that of one half.
        if self.table.of_id(resumption.ticket.allocation).is_none() {
            return Ok((slot, Granted { lifetime, ticket: None }));
        }
        let Some(mobility) = &mut self.table.get_mut(slot).mobility else {
            return Err(Refusal::BadTicket);
        };
        mobility.renew(policy);
        let Resumption { five_tuple, transaction, ticket: TicketBody { serial, .. }, .. } =
            *resumption;
        mobility.answered = Some(Answered { five_tuple, transaction, serial, lifetime });
        Ok((slot, Granted { lifetime, ticket: Some(mobility.ticket) }))
    }

    /// Whether a ticket is the last one, or the one before, shown where it was shown before: there its client
    /// may have missed the answer, given up, and begun another transaction.
    fn is_good(&self, slot: Slot, resumption: &Resumption) -> bool {
        let Some(mobility) = &self.table.get(slot).mobility else { return false };
        let Resumption { five_tuple, ticket: TicketBody { serial, .. }, .. } = *resumption;
        let shown_again =
            |answered: Answered| answered.five_tuple == five_tuple && answered.serial == serial;
        mobility.serial == serial || mobility.answered.is_some_and(shown_again)
    }
}

/// Whether a message is a Refresh by a ticket of ours. Who sent it is not known by that.
pub(crate) fn is_by_ticket(policy: &Policy, message: &Message<'_>) -> bool {
    let ticket = message.first(AttributeType::MOBILITY_TICKET);
    policy.mobility
        && message.method() == Method::REFRESH
        && ticket.is_some_and(|shown| Ticket::open(&policy.auth.nonce_key, shown).is_some())
}

/// Reads a ticket that was shown.
pub(crate) fn read_ticket(
    policy: &Policy,
    responder: &Responder,
    shown: &[u8],
) -> Result<TicketBody, Refusal> {
    // Without integrity a ticket would be a credential (RFC 8016 §6).
    if !policy.mobility || !responder.is_sealed() {
        return Err(Refusal::MobilityForbidden);
    }
    Ticket::open(&policy.auth.nonce_key, shown).ok_or(Refusal::BadTicket)
}

/// The answer to a Refresh by ticket.
pub(crate) fn write(
    policy: &Policy,
    responder: &Responder,
    granted: Granted,
    reply: &mut ReplyBuffer,
) -> Verdict {
    responder.success(policy, reply, |builder| {
        builder.lifetime(granted.lifetime);
        if let Some(ticket) = &granted.ticket {
            builder.mobility_ticket(ticket.as_bytes());
        }
    })
}
