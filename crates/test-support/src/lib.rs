//! Tools of all tests: fresh seeds, skips that `make test` counts, bounded waits, commands of the documentation.
//!
//! Only tests depend on it, and it depends on nothing, so that any crate may use it.
#![forbid(unsafe_code)]

mod documentation;
mod seeds;
mod skip;
mod wait;

pub use documentation::{DocumentedCommand, documented_commands};
pub use seeds::{for_each_seed, fresh_seed};
pub use skip::{require, skip};
pub use wait::eventually;
