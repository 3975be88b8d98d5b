//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod api;
mod control_socket;
mod listings;
mod monitoring;
mod openapi;
mod pace;
mod support;
mod tenants;
