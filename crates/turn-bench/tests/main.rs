//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod compare;
mod engine;
mod footprint;
mod frames;
mod frames_server;
mod hostile;
mod links;
mod page;
mod requests;
mod sessions;
mod soak;
mod support;
