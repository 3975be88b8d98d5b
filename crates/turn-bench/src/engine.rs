//! Runs of traffic: who sends what and when, who counts, and how both ends agree.
//!
//! ```text
//! bench.rs      sessions that are open; one run after the other over them
//!   greeting.rs   before a run: every flow is made known to the peer, and seen to work
//!   course.rs     start, send, wait, ask, add up          line.rs      questions to the peer
//!   receiver.rs   what comes back, and keeping sessions   progress.rs  how it goes
//! find_max.rs   the highest rate that is delivered
//! peer/         the other end
//!
//! plan.rs       a run as both ends know it                control.rs   what they say to each other
//! seam.rs       what makes packets, and what counts them: sockets here, frames elsewhere
//! client.rs     packets by whatever clients have          pace.rs      when bursts are due
//! source.rs       by UDP sockets       connections.rs       by connections
//! counts.rs     counters of all threads                   tally.rs     each packet once
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
