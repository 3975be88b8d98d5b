//! Integration tests of this crate, as one program: each further program would be linked with the
//! complete crate.

mod common;
mod corpus;
#[path = "../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod fuzz_targets;
mod never_panics;
mod oracle;
mod other_rfcs;
mod rfc5769_vectors;
mod rfc8265_s4_opaque_string;
mod rfc8489_b1;
mod rfc8489_s14_attributes;
mod rfc8489_s14_user_name;
mod rfc8489_s5_header;
mod rfc8489_s9_integrity;
mod rfc8489_s9_keys;
mod rfc8656_s12_channels;
mod rfc8656_s18_attributes;
mod round_trip;
mod stream;
