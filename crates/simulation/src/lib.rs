//! Whole servers in a seeded world.
//!
//! [`ServerHost`] runs the workers of `dataplane` over [`SimNet`], an implementation of its seam to
//! the kernel: virtual time, UDP sockets over the links and NATs of `netsim`, TCP connections with
//! delays and bounded buffers, a table of kernel routes with a ring. Its processes end, and others
//! go on: beside it, behind it, or from a keeper's copies. [`ClientHost`] is `turn-client` over
//! UDP, TCP, TLS or DTLS; [`PeerHost`] echoes. [`TcpClientHost`] and [`TcpPeerHost`] do the same
//! with TCP relaying, [`ProbeHost`] tests NAT behaviour discovery. All of them are hosts of one
//! [`netsim::World`], and everything that happens follows from its seed.
//!
//! OpenSSL and rustls take their randomness from the operating system: the bytes of TLS and DTLS
//! differ from run to run, their order and times do not.
#![forbid(unsafe_code)]

mod addresses;
mod asker;
mod client;
mod framing;
mod host;
mod link;
mod net;
mod peer;
mod probe;
mod routes;
mod server;
mod socket;
mod stray;
mod tcp;
mod tcp_client;
mod tcp_peer;
mod udp;
mod watch;

pub use client::{ClientHost, ClientPlan, Login};
pub use framing::Board;
pub use host::{Faults, SimHost};
pub use net::SimNet;
pub use peer::PeerHost;
pub use probe::ProbeHost;
pub use routes::{SimRing, SimRoutes};
pub use server::{DirectoryFaults, ServerHost, ServerPlan, Users};
pub use stray::StrayHost;
pub use tcp::{TcpEnd, TcpNet};
pub use tcp_client::TcpClientHost;
pub use tcp_peer::TcpPeerHost;
