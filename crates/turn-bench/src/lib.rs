//! Load generator, reflector and paired comparison of TURN servers.
//!
//! ```text
//! load ── sessions (real TURN clients) ── traffic (senders, receivers, tallies) ── outcome
//! find-max = load at many rates          peer = the other end of the traffic
//! compare  = servers in namespaces, A B A B…, find-max and load on each, ratios
//! lab      = relays without TURN, side by side
//! programs = how long the kernel path takes for a packet
//! report   = outcomes as one HTML page
//! ```
//!
//! What is measured is what was delivered: each packet of a run carries the run, its flow, a
//! sequence number and the time it was sent, and counts when it arrives.

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
pub mod text;
pub mod traffic;
