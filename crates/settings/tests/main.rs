//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod acme;
mod address_key;
mod diff;
mod documentation;
mod errors;
mod listener_errors;
mod load;
mod policy;
mod ports;
mod realms;
mod reference;
mod support;
mod tokens;
