//! Relays ChannelData of bound channels in the kernel.
//!
//! A BPF program (`bpf/`) forwards packets that have a route, between client and peer, before the
//! network stack processes them. It is a cache of decisions of `turn-proto`: packets without a
//! valid route pass to the sockets, where `turn-proto` decides. The host's own rules (packet
//! filter, address translation, IPsec, routes) see a packet of each direction every other second,
//! and the program forwards the others only while that one leaves as it would send it itself:
//! docs/adr/0009.

mod bpf;
pub mod device;
mod error;
pub mod limits;
mod offload;
mod options;
mod parked;
mod path;
mod routes;

pub use error::KernelPathError;
pub use offload::{Attachment, Offload, OffloadConfig, prepare, start};
pub use options::{Options, Proof};
pub use parked::ParkedPath;
pub use path::{EgressContext, FrameContext, KernelPath, Link, RunResult, Verdict};
pub use routes::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, Ring, RingDatagram, RingEntry,
    Routes,
};
