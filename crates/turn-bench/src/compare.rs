//! Paired comparison of servers.

pub mod statistics;
