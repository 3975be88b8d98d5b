//! Messages between the servers of workers: Refresh by mobility ticket, fetch of an allocation (RFC
//! 8016), and ConnectionBind for another worker's connection (RFC 6062).

use stun_wire::{AttributeType, Message, TransactionId, value};
use turn_types::{
    AllocationId, ClientPath, ConnectionId, FiveTuple, IpFamily, PendingId, WorkerId,
};

use super::refusal::Refusal;
use super::responder::Responder;
use crate::credentials::{Grant, Ticket, TicketBody};

/// Refresh by ticket, for the worker that has the allocation.
#[derive(Clone, Debug)]
pub struct Question {
    pub(crate) pending: PendingId,
    pub(crate) asker: WorkerId,
    pub(crate) refresh: TicketRefresh,
}

/// Result of a [`Question`], from the worker that has the allocation.
#[derive(Clone, Debug)]
pub struct WorkerAnswer {
    pub(crate) pending: PendingId,
    pub(crate) asker: WorkerId,
    pub(crate) result: Result<Promise, Refusal>,
}

/// Success of a Refresh by ticket, with the grant of the allocation that will move.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) granted: Granted,
    pub(crate) grant: Grant,
}

/// Request to hand over an allocation to the client's new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Allocation to hand over.
    pub allocation: AllocationId,
    /// Worker that receives the allocation.
    pub asker: WorkerId,
    /// 5-tuple of the client at that worker.
    pub five_tuple: FiveTuple,
}

impl Question {
    /// Returns the answer for a worker that cannot be reached.
    #[must_use]
    pub const fn unanswered(&self) -> WorkerAnswer {
        let Self { pending, asker, .. } = *self;
        WorkerAnswer { pending, asker, result: Err(Refusal::MoveUnavailable) }
    }
}

impl WorkerAnswer {
    /// Returns the worker that sent the question.
    #[must_use]
    pub const fn asker(&self) -> WorkerId {
        self.asker
    }
}

/// Attributes of a well-formed Refresh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefreshRequest {
    /// LIFETIME in seconds; 0 deletes the allocation.
    pub(crate) lifetime: Option<u32>,
    /// REQUESTED-ADDRESS-FAMILY: selects one relayed address. `None`: all relayed addresses.
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

/// Authentic Refresh by ticket.
#[derive(Clone, Debug)]
pub(crate) struct TicketRefresh {
    pub(crate) ticket: TicketBody,
    pub(crate) grant: Grant,
    pub(crate) request: RefreshRequest,
    pub(crate) five_tuple: FiveTuple,
    pub(crate) transaction: TransactionId,
}

/// Attributes of the success response to a Refresh by ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// LIFETIME in seconds.
    pub(crate) lifetime: u32,
    /// Next ticket; `None` after the allocation has ended.
    pub(crate) ticket: Option<Ticket>,
}

/// Authentic ConnectionBind for the worker that has the connection.
#[derive(Clone, Debug)]
pub struct BindRequest {
    pub(crate) connection: ConnectionId,
    pub(crate) grant: Grant,
    pub(crate) responder: Responder,
}

impl BindRequest {
    /// Returns the connection named by the request, which may be unknown.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Returns the worker of the connection.
    #[must_use]
    pub const fn owner(&self) -> WorkerId {
        self.connection.worker()
    }

    /// Returns the path by which the request arrived.
    #[must_use]
    pub const fn path(&self) -> &ClientPath {
        &self.responder.path
    }

    /// Sets the path to the stream of the request, with the stream's name at the connection's
    /// worker.
    pub const fn came_by(&mut self, path: ClientPath) {
        self.responder.path = path;
    }
}

impl PartialEq for BindRequest {
    /// Returns true for the same transaction of the same client.
    fn eq(&self, other: &Self) -> bool {
        let Self { connection, responder, .. } = self;
        *connection == other.connection
            && responder.path == other.responder.path
            && responder.transaction == other.responder.transaction
    }
}

impl Eq for BindRequest {}
