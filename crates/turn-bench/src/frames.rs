//! Whole frames, put on a link and counted there by XDP programs: rates that sockets cannot reach.
//!
//! ```text
//! Port ─ Source ── live frames ──> link ══ server ══ link ──> Port: counts, takes or sends back
//!
//! Forwarder: a server that only forwards, as an upper bound
//! ```
//!
//! The programs are in `bpf/`; their compiled objects are part of this crate, so that clang is
//! needed only where they are changed (`cargo xtask bpf`). Links are left as they were found.

mod attach;
mod ends;
mod flow;
mod forwarder;
mod histogram;
mod link;
mod object;
mod pace;
mod port;
mod privilege;
mod probe;
mod shared;
mod sink;
mod source;
mod template;
#[cfg(test)]
mod testing;

pub use ends::{End, FrameEnds};
pub use flow::{FrameFlow, Mac};
pub use forwarder::{Forwarder, Hop};
pub use link::Link;
pub use port::Port;
pub use privilege::{Unavailable, available};
pub use probe::probe;
pub use sink::{SinkTally, Watch};
pub use source::{Made, Pace, Source, SourceRun};
