//! Workers: one thread per core with dedicated sockets and one `turn-proto`
//! [`Server`](turn_proto::Server).
//!
//! Start reading at `worker.rs`: the loop owns the parts and calls them in a fixed order. Each part
//! has a separate folder and separate state, and borrows the shared `context` for each call:
//!
//! - `udp`: datagrams of clients and peers, ICMP errors;
//! - `stream`: clients' TCP connections with PROXY protocol, TLS, framing, deadlines;
//! - `dtls`: cookies, handshakes, sessions;
//! - `tcp_relay`: connections with peers (RFC 6062);
//! - `offload`: routes of the kernel path, and the ring that delivers datagrams to a worker;
//! - `workers`: messages between workers.
//!
//! `io` is the interface to the kernel. Simulations replace the implementation. `egress` gathers
//! datagrams to send. `report` counts and logs.
//!
//! The server decides the fate of each datagram and returns a verdict. The worker turns the verdict
//! into a datagram that consists of a new header and ranges of the receive buffer, so payload is
//! never copied. The packet path takes no lock, does not allocate heap memory after warm-up, and
//! never blocks. Each packet has exactly one fate, counted after the kernel has accepted or refused
//! the packet.
//!
//! Terms of this crate:
//!
//! - *Iteration*: one pass of the worker's loop. Constants and functions call an iteration `turn`.
//! - *Stream*: TCP connection of a client, with or without TLS.
//! - *Customer*: one IPv4 address, or one /64 network of IPv6
//!   ([`Prefix::customer`](turn_types::Prefix::customer)).
//! - *Crowded relay*: UDP relay of a client or network that already had many relays. The fair
//!   `input_queue` schedules crowded relays.
//! - *Shared socket*: UDP socket for all relays at addresses of a prefix.
//! - *Pipe*: a client's TCP connection and a peer's TCP connection that exchange bytes (RFC 6062).
//! - *Copies*: snapshots of allocations that a worker sends while serving, to a successor or a
//!   keeper.
//! - *Keeper*: separate process that stores the copies of a server, for a successor after a crash.
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
