//! An allocation whose client may move (RFC 8016), and the move itself where both ends of it are this
//! worker's. See `request/mobile.rs` for the Refresh that begins it, `handover.rs` for moves between
//! workers, and docs/adr/0007.
//!
//! ```text
//! Refresh by ticket from a new 5-tuple   the old one carries data, either may be used ("next")
//! data or a request on the new one       the new one carries data, the old one is forgotten
//! the old connection ends                likewise; without a new one the allocation waits, detached
//! ```

use stun_wire::TransactionId;
use turn_types::{AllocationId, ClientPath, FiveTuple, Instant, WorkerId};

use crate::allocation::Allocation;
use crate::command::Command;
use crate::handover::Fetch;
use crate::notice::Notice;
use crate::policy::Policy;
use crate::registry::Home;
use crate::state::State;
use crate::table::Slot;
use crate::ticket::{Ticket, TicketBody};

/// What an allocation whose client may move has besides.
#[derive(Debug)]
pub(crate) struct Mobility {
    /// The one that is good; older ones are void.
    pub(crate) ticket: Ticket,
    pub(crate) serial: u32,
    /// Tells all workers where it is.
    pub(crate) home: Home,
    /// Where its client is about to be.
    pub(crate) next: Option<Next>,
    /// The last Refresh by ticket, to know a retransmission by.
    pub(crate) answered: Option<Answered>,
}

/// Where a client is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this worker.
    Here(ClientPath),
    /// At another one.
    Worker(WorkerId, FiveTuple),
}

/// What a Refresh by ticket was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
    /// Of the ticket that it showed.
    pub(crate) serial: u32,
    /// LIFETIME.
    pub(crate) lifetime: u32,
}

impl Mobility {
    pub(crate) fn new(policy: &Policy, home: Home) -> Self {
        let body = TicketBody { allocation: home.allocation(), serial: 0 };
        let ticket = Ticket::seal(&policy.auth.nonce_key, body);
        Self { ticket, serial: 0, home, next: None, answered: None }
    }

    /// Makes the next ticket, which voids this one.
    pub(crate) fn renew(&mut self, policy: &Policy) {
        let body = TicketBody { allocation: self.home.allocation(), serial: self.serial }.next();
        self.serial = body.serial;
        self.ticket = Ticket::seal(&policy.auth.nonce_key, body);
    }

    /// The path at this worker that its client is about to have.
    pub(crate) fn next_here(&self) -> Option<&ClientPath> {
        match &self.next {
            Some(Next::Here(path)) => Some(path),
            Some(Next::Worker(..)) | None => None,
        }
    }
}

impl Allocation {
    /// Whether this is the 5-tuple that its client is about to have.
    pub(crate) fn expects(&self, five_tuple: &FiveTuple) -> bool {
        let next = self.mobility.as_ref().and_then(|mobility| mobility.next_here());
        next.is_some_and(|path| path.five_tuple == *five_tuple)
    }
}

impl State {
    /// The client has been heard on the 5-tuple it was expected on: from now on that is the only one.
    pub(crate) fn complete_move(&mut self, policy: &Policy, now: Instant, slot: Slot) {
        self.table.withdraw_routes(slot, &mut self.outbox);
        let Some((from, to)) = self.table.take_next_path(slot) else { return };
        let id = self.table.get(slot).id;
        self.outbox.notice(Notice::AllocationMoved { id, from, to: to.five_tuple });
        self.announce(policy, now, slot);
    }

    /// The connection of a client that may move has ended: the allocation goes on where the client is
    /// about to be, or waits for it.
    pub(crate) fn lose_path(
        &mut self,
        slot: Slot,
        five_tuple: &FiveTuple,
        policy: &Policy,
        now: Instant,
    ) {
        let allocation = self.table.get(slot);
        if allocation.expects(five_tuple) {
            self.table.forget_next(slot);
        } else if let Some(Next::Worker(asker, five_tuple)) =
            allocation.mobility.as_ref().and_then(|mobility| mobility.next)
        {
            let fetch = Fetch { allocation: allocation.id, asker, five_tuple };
            self.table.withdraw_routes(slot, &mut self.outbox);
            self.table.detach(slot);
            self.outbox.command(Command::HandOver(fetch));
        } else if allocation
            .mobility
            .as_ref()
            .is_some_and(|mobility| mobility.next_here().is_some())
        {
            self.complete_move(policy, now, slot);
        } else {
            self.table.withdraw_routes(slot, &mut self.outbox);
            self.table.detach(slot);
        }
    }

    /// Whether a Refresh by ticket is one that was answered, come again.
    pub(crate) fn is_answered(
        &self,
        slot: Slot,
        five_tuple: &FiveTuple,
        transaction: TransactionId,
    ) -> Option<(u32, Ticket)> {
        let mobility = self.table.get(slot).mobility.as_ref()?;
        let answered = mobility.answered?;
        (answered.five_tuple == *five_tuple && answered.transaction == transaction)
            .then_some((answered.lifetime, mobility.ticket))
    }

    /// The allocation with this id, if it is here and its client may move.
    pub(crate) fn mobile_slot(&mut self, now: Instant, id: AllocationId) -> Option<Slot> {
        let slot = self.table.of_id(id)?;
        let allocation = self.table.get(slot);
        (allocation.mobility.is_some() && allocation.is_live(now)).then_some(slot)
    }
}
