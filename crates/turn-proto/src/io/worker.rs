//! Messages between the servers of workers: a Refresh by mobility ticket and the fetching of its
//! allocation (RFC 8016), and a ConnectionBind on its way to the worker of its connection (RFC
//! 6062).

use stun_wire::{AttributeType, Message, TransactionId, value};
use turn_types::{
    AllocationId, ClientPath, ConnectionId, FiveTuple, IpFamily, PendingId, WorkerId,
};

use super::refusal::Refusal;
use super::responder::Responder;
use crate::credentials::{Grant, Ticket, TicketBody};

/// A Refresh by ticket, for the worker that has the allocation.
#[derive(Clone, Debug)]
pub struct Question {
    pub(crate) pending: PendingId,
    pub(crate) asker: WorkerId,
    pub(crate) refresh: TicketRefresh,
}

/// The answer of the worker that has the allocation.
#[derive(Clone, Debug)]
pub struct WorkerAnswer {
    pub(crate) pending: PendingId,
    pub(crate) asker: WorkerId,
    pub(crate) result: Result<Promise, Refusal>,
}

/// Success of a Refresh by ticket, with the grant of the allocation that is to move.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) granted: Granted,
    pub(crate) grant: Grant,
}

/// A request to hand an allocation over to the worker of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The allocation.
    pub allocation: AllocationId,
    /// The worker that it goes to.
    pub asker: WorkerId,
    /// The client's 5-tuple there.
    pub five_tuple: FiveTuple,
}

impl Question {
    /// The answer when the other worker cannot be asked.
    #[must_use]
    pub const fn unanswered(&self) -> WorkerAnswer {
        let Self { pending, asker, .. } = *self;
        WorkerAnswer { pending, asker, result: Err(Refusal::MoveUnavailable) }
    }
}

impl WorkerAnswer {
    /// The worker that asked.
    #[must_use]
    pub const fn asker(&self) -> WorkerId {
        self.asker
    }
}

/// The attributes of a well-formed Refresh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefreshRequest {
    /// LIFETIME in seconds; 0 ends the allocation.
    pub(crate) lifetime: Option<u32>,
    /// REQUESTED-ADDRESS-FAMILY: the relayed address that is meant, if not both.
    pub(crate) family: Option<IpFamily>,
}

impl RefreshRequest {
    pub(crate) fn read(message: &Message<'_>) -> Result<Self, Refusal> {
        let lifetime = message.first(AttributeType::LIFETIME).map(value::lifetime);
        let family = message.first(AttributeType::REQUESTED_ADDRESS_FAMILY);
        let lifetime = lifetime.transpose().map_err(|_| Refusal::BadRequest)?;
        let family = family.map(value::address_family).transpose();
        let family = family.map_err(|_| Refusal::BadRequest)?.map(|number| {
            // No allocation has an address of an unknown family.
            IpFamily::from_wire(number).ok_or(Refusal::PeerFamilyMismatch)
        });
        Ok(Self { lifetime, family: family.transpose()? })
    }
}

/// An authentic Refresh by ticket.
#[derive(Clone, Debug)]
pub(crate) struct TicketRefresh {
    pub(crate) ticket: TicketBody,
    pub(crate) grant: Grant,
    pub(crate) request: RefreshRequest,
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
}

/// The attributes of the success response to a Refresh by ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// LIFETIME in seconds.
    pub(crate) lifetime: u32,
    /// The next ticket; none after the end.
    pub(crate) ticket: Option<Ticket>,
}

/// An authentic ConnectionBind on its way to the worker that has the connection.
#[derive(Clone, Debug)]
pub struct BindRequest {
    pub(crate) connection: ConnectionId,
    pub(crate) grant: Grant,
    pub(crate) responder: Responder,
}

impl BindRequest {
    /// The connection that it names; possibly unknown.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The worker of that connection.
    #[must_use]
    pub const fn owner(&self) -> WorkerId {
        self.connection.worker()
    }

    /// The path that it came by.
    #[must_use]
    pub const fn path(&self) -> &ClientPath {
        &self.responder.path
    }

    /// Sets the path to the stream that it came by, under its name at the worker of the connection.
    pub const fn came_by(&mut self, path: ClientPath) {
        self.responder.path = path;
    }
}

impl PartialEq for BindRequest {
    /// Returns true for the same request: the same transaction of the same client.
    fn eq(&self, other: &Self) -> bool {
        let Self { connection, responder, .. } = self;
        *connection == other.connection
            && responder.path == other.responder.path
            && responder.transaction == other.responder.transaction
    }
}

impl Eq for BindRequest {}
