//! Mobility of an allocation (RFC 8016): the ticket, and the path at which the client is expected.

use state_format::{fields, variants};
use stun_wire::TransactionId;
use turn_types::{ClientPath, FiveTuple, WorkerId};

use super::registry::LocationLease;
use crate::credentials::{Ticket, TicketBody};
use crate::policy::NonceKey;

/// State of an allocation with a mobile client.
#[derive(Debug)]
pub(crate) struct Mobility {
    /// Valid ticket. Older tickets are void.
    pub(crate) ticket: Ticket,
    pub(crate) serial: u32,
    pub(crate) location: LocationLease,
    /// Path or worker at which the client is expected.
    pub(crate) next: Option<Next>,
    /// Last Refresh by ticket, to recognise a retransmission.
    pub(crate) answered: Option<Answered>,
}

/// Location at which a client is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Path at this worker.
    Here(ClientPath),
    /// 5-tuple at another worker.
    Worker(WorkerId, FiveTuple),
}

/// Refresh by ticket that got a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
    /// Serial number of the ticket in the Refresh.
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

    /// Creates a new ticket, which voids the present ticket.
    pub(crate) fn renew(&mut self, key: &NonceKey) {
        let body =
            TicketBody { allocation: self.location.allocation(), serial: self.serial }.next();
        self.serial = body.serial;
        self.ticket = Ticket::seal(key, body);
    }

    /// Returns true for the latest ticket. The previous ticket remains valid on the 5-tuple of the
    /// Refresh by that ticket. The client may have missed the response, and may have started
    /// another transaction.
    pub(crate) fn accepts(&self, serial: u32, five_tuple: &FiveTuple) -> bool {
        let again =
            |answered: Answered| answered.five_tuple == *five_tuple && answered.serial == serial;
        self.serial == serial || self.answered.is_some_and(again)
    }
}
