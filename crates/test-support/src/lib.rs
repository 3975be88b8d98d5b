//! Tools of all tests: fresh seeds, skips that `make test` counts, bounded waits, commands of the
//! documentation, database servers.
//!
//! Only tests depend on it, and it depends on nothing, so that any crate may use it.
#![forbid(unsafe_code)]

mod database_server;
mod documentation;
mod seeds;
mod skip;
mod wait;

pub use database_server::{DatabaseKind, DatabaseServer};
pub use documentation::{DocumentedCommand, documented_commands};
pub use seeds::{for_each_seed, fresh_seed};
pub use skip::{require, skip};
pub use wait::eventually;
