//! Shares of bounded tables and budgets.
//!
//! Every table and every budget that clients use up must answer one question: does a client take
//! more than a fair part while other clients wait? A client is counted at several levels: by
//! address, by the networks around the address, and, where known, by account and realm
//! ([`Claimant`], [`Levels`]). A sender with a `/32` of IPv6 counts as one network, and not as
//! 4 billion customers.
//!
//! - [`Slots`] counts the entries of a table. While the table has space, every client gets an
//!   entry. As space becomes scarce, only clients with fewer and fewer entries get another entry,
//!   and a client without any still finds a free slot. A table that may drop entries queries
//!   [`Slots::rival`] for the entry to drop.
//! - [`Meter`] measures use over time: processor time, responses, attempts.
//! - [`FairQueue`] holds waiting work, sorted by the recent use of clients: a client with few
//!   requests precedes clients with many. [`Window`] bounds the work in flight behind the queue.
//!
//! Use at a level is divided by the [weight](Levels) of the level. A limit applies to the largest
//! quotient. The sum of the quotients compares clients. Costs do not depend on the number of
//! clients: one hash and one entry per level.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(test)]
mod attackers;
mod claimant;
mod levels;
mod meter;
mod queue;
mod realm_queue;
mod slots;
mod window;

pub use claimant::Claimant;
pub use levels::{
    CLIENTS, LOGGED_IN, Levels, PROCESSOR_USERS, PrefixLevel, REFLECTION_TARGETS, USERS,
};
pub use meter::{Allowance, Meter};
pub use queue::FairQueue;
pub use realm_queue::RealmQueue;
pub use slots::{Share, Shortage, Slots, Supply, UseLevel};
pub use window::{QuestionNumber, Window};

/// A hasher with a secret seed of the system's, for tables and budgets outside of a worker.
#[cfg(feature = "std")]
#[must_use]
pub fn system_hasher() -> ahash::RandomState {
    use core::hash::BuildHasher as _;
    let system = std::hash::RandomState::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|number| system.hash_one(number));
    ahash::RandomState::with_seeds(a, b, c, d)
}
