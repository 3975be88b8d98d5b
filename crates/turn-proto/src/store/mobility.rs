//! The mobility of one allocation (RFC 8016): its ticket, and the path that its client is about to
//! have.

use state_format::{fields, variants};
use stun_wire::TransactionId;
use turn_types::{ClientPath, FiveTuple, WorkerId};

use super::registry::LocationLease;
use crate::credentials::{Ticket, TicketBody};
use crate::policy::NonceKey;

/// State of an allocation with a client that may move.
#[derive(Debug)]
pub(crate) struct Mobility {
    /// The valid ticket; older ones are void.
    pub(crate) ticket: Ticket,
    pub(crate) serial: u32,
    pub(crate) location: LocationLease,
    /// The place where its client is expected.
    pub(crate) next: Option<Next>,
    /// The last Refresh by ticket, to recognise a retransmission.
    pub(crate) answered: Option<Answered>,
}

/// The place where a client is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A path at this worker.
    Here(ClientPath),
    /// A 5-tuple at another one.
    Worker(WorkerId, FiveTuple),
}

/// A Refresh by ticket that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
    /// Of the ticket that it had.
    pub(crate) serial: u32,
    /// LIFETIME in seconds.
    pub(crate) lifetime: u32,
}

fields!(Answered { 1 => five_tuple, 2 => transaction, 3 => serial, 4 => lifetime });

variants!(Next, "kind of place" { 1 => Here(path), 2 => Worker(worker, five_tuple) });

impl Mobility {
    pub(crate) fn new(key: &NonceKey, location: LocationLease) -> Self {
        let body = TicketBody { allocation: location.allocation(), serial: 0 };
        let ticket = Ticket::seal(key, body);
        Self { ticket, serial: 0, location, next: None, answered: None }
    }

    /// Makes the next ticket, which voids this one.
    pub(crate) fn renew(&mut self, key: &NonceKey) {
        let body =
            TicketBody { allocation: self.location.allocation(), serial: self.serial }.next();
        self.serial = body.serial;
        self.ticket = Ticket::seal(key, body);
    }

    /// Returns true for the last ticket, and for the one before on the 5-tuple where it was used:
    /// there its client may have missed the response, and have begun another transaction.
    pub(crate) fn accepts(&self, serial: u32, five_tuple: &FiveTuple) -> bool {
        let again =
            |answered: Answered| answered.five_tuple == *five_tuple && answered.serial == serial;
        self.serial == serial || self.answered.is_some_and(again)
    }
}
