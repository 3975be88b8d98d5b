//! Shares of bounded tables and budgets.
//!
//! Every table and every budget that clients use up has to answer one question: does this client
//! take more than its part while others wait? A client is counted at several levels at the same
//! time: by its address, by the networks around the address, and, where they are known, by its
//! account and its realm ([`Claimant`], [`Levels`]). A sender that has a `/32` of IPv6 is one
//! network of 65,536 sites, and not 4 billion customers.
//!
//! - [`Slots`] counts the entries of a table. While the table has space, every client gets an
//!   entry. The scarcer the space, the fewer entries a client may have to get another one, so that
//!   a client with none finds one. A table whose entries can be dropped also asks [`Slots`] which
//!   one makes room ([`Slots::rival`]).
//! - [`Meter`] measures use over time: processor time, responses, attempts.
//! - [`FairQueue`] holds work that waits, sorted by the recent use of its clients, so that a client
//!   that has asked for little is served before those that have asked for much.
//!
//! Use at a level is divided by the [weight](Levels) of the level, and the largest quotient is
//! the use of the client. Costs do not depend on the number of clients: one hash and one entry for
//! each level.
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
mod slots;

pub use claimant::Claimant;
pub use levels::{CLIENTS, LOGGED_IN, Levels, PrefixLevel, REFLECTION_TARGETS, USERS};
pub use meter::{Allowance, Meter};
pub use queue::FairQueue;
pub use slots::{Share, Shortage, Slots};

/// A hasher with a secret seed of the system's, for tables and budgets outside of a worker.
#[cfg(feature = "std")]
#[must_use]
pub fn system_hasher() -> ahash::RandomState {
    use core::hash::BuildHasher as _;
    let system = std::hash::RandomState::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|number| system.hash_one(number));
    ahash::RandomState::with_seeds(a, b, c, d)
}
