//! Kernel path: relays ChannelData of bound channels in the kernel.
//!
//! A BPF program (`bpf/`) forwards packets that have a route, between client and peer, before the
//! network stack processes them. The routes are a cache of decisions of `turn-proto`. Packets
//! without a valid route pass to the sockets, where `turn-proto` decides.
//!
//! The host's rules are the packet filter, address translation, IPsec and routes. Every other
//! second the program punts a packet of each direction of a flow: the packet passes to the network
//! stack, where the rules apply. A second program, the tap, observes the packets that leave the
//! stack. If the packet leaves as the program would send it, this is the proof of the direction.
//! Without a recent proof the program forwards no packets of the direction (docs/adr/0009).

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
