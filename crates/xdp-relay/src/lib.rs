//! Relays ChannelData of bound channels in the kernel.
//!
//! A BPF program (`bpf/`) forwards what it has a route for, between client and peer, before the
//! kernel makes anything of the packet. It is a cache of what `turn-proto` decided: what it does not
//! know, or is in doubt about, passes to the sockets, where all of it is decided anew. The host's own rules
//! (packet filter, address translation, IPsec, routes) see a packet of each direction every other second,
//! and the program carries the others only while that one leaves unaltered: docs/adr/0009.

mod bpf;
pub mod device;
mod error;
pub mod limits;
mod offload;
mod options;
mod path;
mod routes;

pub use error::KernelPathError;
pub use offload::{Attachment, Offload, OffloadConfig, start};
pub use options::{Options, Proof};
pub use path::{EgressContext, FrameContext, KernelPath, Link, RunResult, Verdict};
pub use routes::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, Ring, RingDatagram, Routes,
};
