//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate. Programs of their own are those that count for a whole process: `allocations.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod connected;
mod connecting;
mod descriptors;
mod errors;
mod loopback;
mod missing_options;
mod mtu;
mod support;
mod waiting;
