//! Whole frames, put on a link and counted there by XDP programs: rates that sockets cannot reach.
//!
//! ```text
//! Source ── BPF_PROG_TEST_RUN, live frames ──> link ══ server ══ link ──> Sink (XDP, counts, drops)
//! Reflector: a peer that echoes             Forwarder: a server that only forwards, as a mark
//! ```
//!
//! The programs are in `bpf/`; their compiled objects are part of this crate, so that clang is needed
//! only where they are changed (`cargo xtask bpf`). Links are left as they were found.

mod attach;
mod flow;
mod forwarder;
mod histogram;
mod link;
mod object;
mod privilege;
mod probe;
mod reflector;
mod sink;
mod source;
mod template;
#[cfg(test)]
mod testing;

pub use flow::{FrameFlow, Mac};
pub use forwarder::{Forwarder, Hop};
pub use link::Link;
pub use privilege::{Unavailable, available};
pub use probe::probe;
pub use reflector::Reflector;
pub use sink::{Sink, SinkTally, Watch};
pub use source::{Made, Source, SourceRun};
