//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod corpus;
mod host;
mod import;
mod installations;
mod inventory;
mod replacement;
mod rows;
