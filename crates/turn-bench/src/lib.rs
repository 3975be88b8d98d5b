//! Load generator and paired comparison of TURN servers.
//!
//! ```text
//! load      one run                      find-max  runs at many rates
//! peer      the other end of the traffic
//! footprint memory of idle allocations
//! compare   servers in namespaces, A B A B…, find-max and load on each, ratios
//! lab       relays without TURN          programs  time of the kernel path's programs
//! table     the comparisons of the summary
//! report    results as one HTML page, or their summary
//! ```
//!
//! Results count delivered packets: each packet of a run carries the run, its flow, a sequence
//! number and its send time, and counts when it arrives.

pub mod arguments;
pub mod cli;
pub mod compare;
pub mod cpu;
pub mod engine;
pub mod footprint;
pub mod frames;
pub mod lab;
pub mod load;
mod machine;
pub mod network;
pub mod outcome;
pub mod packet;
pub mod packets;
pub mod programs;
pub mod report;
pub mod requests;
pub mod session;
pub mod table;
pub mod text;
pub mod traffic;
