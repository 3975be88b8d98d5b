//! Protocol rules of a TURN client (RFC 8656), as a value.
//!
//! A [`Client`] takes datagrams and time, and returns datagrams to send. It owns no socket and
//! reads no clock. The client authenticates, refreshes its allocation, permissions and channels,
//! and returns data from peers. Usage:
//!
//! ```text
//! client.allocate(now, AllocateOptions::default());
//! client.permit(now, peer.ip());                 // or bind_channel; both may be called beforehand
//! loop {
//!     while let Some(bytes) = client.poll_transmit() { send them to client.server() }
//!     while let Some(event) = client.poll_event()    { allocated, ready, refused, lost ... }
//!     wait for a datagram from client.server(), or for client.poll_timeout()
//!     client.handle_datagram(now, datagram)          // Incoming::Data is for the caller
//!     client.handle_timeout(now)
//! }
//! client.write_channel_data(&mut out, channel, payload) // for a peer, into the caller's buffer
//! ```
//!
//! Pass only datagrams of the configured server: a connected socket ensures this.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocation;
mod client;
mod config;
mod data;
mod event;
mod incoming;
mod limits;
mod login;
mod request;
mod response;
mod transaction;
mod upkeep;

pub use allocation::Allocation;
pub use client::Client;
pub use config::{
    AccessToken, AlgorithmChoice, AllocateOptions, ClientConfig, EvenPort, Families, Retransmission,
};
pub use event::{Event, Failure, LossReason, RequestKind};
pub use incoming::{IgnoreReason, Incoming};
pub use request::RequestError;
