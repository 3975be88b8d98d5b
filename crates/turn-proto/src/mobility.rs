//! Clients that move (RFC 8016). A Refresh by ticket moves an allocation to another 5-tuple. The
//! new 5-tuple may belong to another worker, because clients are distributed over the workers by
//! 5-tuple.
//!
//! ```text
//! Refresh by ticket from a new 5-tuple   the old one carries data, either may be used ("next")
//! data or a request on the new one       the new one carries data, the old one is removed
//! the old connection ends                likewise; without a new one the allocation is detached
//! ```
//!
//! Between workers:
//!
//! ```text
//! at the new worker                         at the worker that has the allocation
//! Refresh by ticket -> Question       -->   answer_worker: refreshes, makes the next ticket
//! responds to the client        <--         WorkerAnswer
//! data or a request -> Fetch          -->   withdraw, depart: routes first, then the allocation
//! arrive                            <--         Departure, together with the relay sockets
//! ```
//!
//! Packets of the client that arrive before the allocation wait in a queue. A message between
//! workers is repeated until there is an answer. Repeated messages have no further effect. At any
//! time exactly one worker has the allocation, with its ports, its quota slots and the client's
//! previous 5-tuple. See docs/adr/0007.

use turn_types::Instant;

use crate::store::{
    Allocations, ExpectedClients, Ids, MoveQueues, Outbox, Pending, RegistryHandle,
};

pub(crate) mod by_ticket;
mod claim;
pub(crate) mod expected;
pub(crate) mod import;
pub(crate) mod path;
mod queue;
pub(crate) mod reserved;
pub(crate) mod worker_move;

/// Stores used by moves.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) pending: &'a mut Pending,
    pub(crate) expected: &'a mut ExpectedClients,
    pub(crate) queues: &'a mut MoveQueues,
    /// Time to repeat questions to workers that have not answered. `None` while no answer is
    /// missing.
    pub(crate) repeat_at: &'a mut Option<Instant>,
    pub(crate) registry: &'a RegistryHandle,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) ids: &'a mut Ids,
}
