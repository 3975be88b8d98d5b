//! Temporary network, with the kernel path and the server's rules. Both process every frame.
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
