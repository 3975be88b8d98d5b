//! Tests of this crate from the outside, as one program, because each further program would link
//! the complete crate. Three tests are separate: `no_allocation.rs` and `costs.rs` count for an
//! entire process, and `interleavings.rs` compiles a part of the library with loom's atomics.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod budgets;
mod conformance;
mod corpus;
mod deleted_users;
#[path = "../../../fuzz/src/server.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod fuzz_targets;
mod limits_of_credentials;
mod model;
mod policy_review;
mod realms;
mod revoked;
mod rfc;
mod routes;
mod routes_and_rules;
mod security_history;
mod shares;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the fuzz targets use it as well, with parts that no test does"
)]
mod sim;
mod simulation;
mod stream_simulation;
mod support;
