//! The state of a server: small stores, each with verbs of its own. None of them knows a method.

pub(crate) mod allocation;
pub(crate) mod allocations;
pub(crate) mod bandwidth;
pub(crate) mod budgets;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod expected_clients;
pub(crate) mod ids;
pub(crate) mod lifecycle;
pub(crate) mod mobility;
pub(crate) mod move_queue;
pub(crate) mod new_peers;
pub(crate) mod outbox;
pub(crate) mod pending;
pub(crate) mod pending_allocation;
pub(crate) mod permission;
pub(crate) mod registry;
pub(crate) mod routes;
pub(crate) mod snapshot;
pub(crate) mod source_budget;
mod timers;
