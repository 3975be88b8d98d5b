//! Clients that move (RFC 8016): a Refresh by ticket gives an allocation another 5-tuple, perhaps
//! at another worker, as clients are spread over the workers by their 5-tuples.
//!
//! ```text
//! Refresh by ticket from a new 5-tuple   the old one carries data, either may be used ("next")
//! data or a request on the new one       the new one carries data, the old one is forgotten
//! the old connection ends                likewise; without a new one the allocation is detached
//! ```
//!
//! Between workers:
//!
//! ```text
//! at the new worker                         at the worker that has the allocation
//! Refresh by ticket -> Question       -->   answer_worker: refreshes it, makes the next ticket
//! answers its client            <--         WorkerAnswer
//! data or a request -> Fetch          -->   withdraw, depart: routes go, then the allocation
//! arrive                        <--         Departure, with the relay sockets beside it
//! ```
//!
//! The client's packets before that wait in a queue. A message without an answer is repeated; it
//! changes nothing when it comes again. The allocation is in exactly one place at any time, and
//! with it its ports, its place in the quota, and the 5-tuple that its client used before. See
//! docs/adr/0007.

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

/// The stores that moves work on.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) pending: &'a mut Pending,
    pub(crate) expected: &'a mut ExpectedClients,
    pub(crate) queues: &'a mut MoveQueues,
    /// Time to ask workers without an answer again; `None` while no answer is missing.
    pub(crate) repeat_at: &'a mut Option<Instant>,
    pub(crate) registry: &'a RegistryHandle,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) ids: &'a mut Ids,
}
