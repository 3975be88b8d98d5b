//! Relays ChannelData of bound channels in the kernel.
//!
//! A BPF program (`bpf/`) forwards what it has a route for, between client and peer, before the
//! kernel makes anything of the packet. It is a cache of what `turn-proto` decided: what it does not
//! know, or is in doubt about, passes to the sockets, where all of it is decided anew. The host's own rules
//! (packet filter, address translation, IPsec, routes) see a packet of each direction every other second,
//! and the program carries the others only while that one leaves unaltered: docs/adr/0009.

pub mod device;
mod entries;
mod flow;
mod layout;
pub mod limits;
mod object;
mod options;
mod path;
mod pins;
mod ring;
mod routes;
mod self_test;
mod shared;
mod slots;
mod start;
mod trouble;

pub use flow::Flow;
pub use options::{Options, Proof};
pub use path::{Comes, KernelPath, Leaving, Link, Ran, Verdict};
pub use ring::{Handed, Ring, Ticket};
pub use routes::{Carried, FlowId, OfAllocation, Routes};
pub use start::{Attached, Offload, Wanted, start};
pub use trouble::Trouble;
