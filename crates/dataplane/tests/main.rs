//! The tests of this crate from the outside, as one program: each more would be linked with the
//! whole crate. Programs of their own are those that count for a whole process: `no_allocation.rs`,
//! `system_calls.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod copies;
mod discovery;
mod dtls;
mod export;
mod handshake_queue;
mod listening_ports;
mod moves;
mod proxy;
mod relay;
mod relay_prefixes;
mod streams;
mod support;
mod tcp_relay;
mod worker;
