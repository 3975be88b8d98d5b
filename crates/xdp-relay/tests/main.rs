//! Tests of this crate's public interface, linked as one program, since each program would be
//! linked with the complete crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod differential;
mod evidence;
mod links;
mod loads;
mod local_senders;
mod order;
mod races;
mod reasons;
mod ring_delivery;
mod shares;
mod support;
mod sweeping;
