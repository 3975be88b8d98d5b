//! Integration tests of this crate, linked as one program, because each further program would be
//! linked with the complete crate. Tests that measure a complete process are separate programs:
//! `no_allocation.rs`, `system_calls.rs`.
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
