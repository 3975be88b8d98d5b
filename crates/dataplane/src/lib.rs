//! Workers: one thread per core with sockets and one `turn-proto` [`Server`](turn_proto::Server).
//!
//! Read `worker.rs` first: the loop, which owns the parts and calls them in order. Each part has
//! its own folder and state, and gets the `context` that all share for one call:
//!
//! - `udp`: datagrams of clients and peers, ICMP errors;
//! - `stream`: clients' TCP connections with PROXY protocol, TLS, framing, deadlines;
//! - `dtls`: cookies, handshakes, sessions;
//! - `tcp_relay`: connections with peers (RFC 6062);
//! - `offload`: routes of the kernel path and its ring;
//! - `workers`: messages between workers.
//!
//! `io` is the seam to the kernel, which simulations replace. `egress` gathers datagrams to send,
//! `report` counts and logs.
//!
//! A datagram is judged by the server; its verdict becomes a datagram to send: a header written
//! here and ranges of the receive buffer, so that payload is never copied. The path of a packet has
//! no lock, no heap allocation after warm-up, and no waiting. Each packet has exactly one fate,
//! counted when the kernel has taken or refused it.
#![forbid(unsafe_code)]

mod admission;
mod context;
mod copying;
mod dtls;
mod egress;
mod handshake_budget;
mod input_queue;
pub mod io;
mod kept;
pub mod limits;
mod offload;
mod report;
mod slab;
mod snapshot;
mod sockets;
mod spawn;
mod stream;
mod tcp_relay;
mod token;
mod udp;
mod worker;
mod workers;

pub use admission::{Admission, ConnectionLimits};
pub use dtls::{DtlsSettings, SessionImportError};
pub use kept::KeptWorker;
pub use report::{LogAddresses, LogOptions, PseudonymKey, TRACED};
pub use snapshot::{
    AllocationSnapshot, DescriptorIndex, Export, RelaySnapshot, Snapshot, StreamSnapshot,
};
pub use sockets::{DeviceIndex, Listener, NetOptions, RelaySettings, SharedSocket};
pub use spawn::{Entrance, Spawned, Update, mailbox, spawn};
pub use stream::{StreamImportError, StreamSettings};
pub use worker::{ImportError, Worker, WorkerSpec};
pub use workers::{WorkerChannels, WorkerEndpoint};
