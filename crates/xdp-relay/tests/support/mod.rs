//! A temporary network, the kernel path in it, and the server's rules beside it: both get every
//! frame.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the tests' own tools: each test file uses a part of them, and panics are its verdict"
)]

pub mod flow;
pub mod frame;
pub mod network;
pub mod oracle;
pub mod random;
pub mod world;

pub use network::inside;
pub use world::World;
