//! Tests of this crate's public interface, linked as one program, since each program would be
//! linked with the complete crate. Tests that count for a complete process are separate programs:
//! `allocations.rs`.
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
