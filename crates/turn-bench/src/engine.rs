//! Runs of packets: sending on schedule, counting, and the agreement of both ends.
//!
//! ```text
//! bench         open sessions, and runs over them
//!   handshake     registers every flow with the peer before a run
//!   run           start, send, wait, query, add up     line      queries to the peer
//!   receiver      receives, and keeps sessions alive   progress  on standard error
//! find_max      the highest rate that is delivered
//! peer/         the other end
//!
//! plan          a run as both ends know it             control   messages between them
//! backend       traits of sending and counting: sockets here, frames elsewhere
//! client        packets of clients                     pace      the schedule of bursts
//! source        by UDP sockets     connections         by connections
//! counts        counters of all threads                tally     counting each packet once
//! ```

mod backend;
mod bench;
mod client;
mod clock;
mod connections;
mod control;
mod counts;
mod find_max;
mod handshake;
mod line;
mod pace;
mod peer;
mod plan;
mod progress;
mod receiver;
mod run;
mod source;
mod tally;

pub use backend::{Ends, Gauge, Sent, Sink, Source, Target};
pub use bench::{Bench, BenchOptions};
pub use clock::{ClockId, now};
pub use find_max::FindMaxSpec;
pub use peer::{Peer, PeerOptions};
pub use plan::{Plan, Window};
pub use tally::Tally;
pub(crate) use tally::{Arrived, Count, Seen};
