//! Tests of the client with a scripted server, by section of the RFCs.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on fails the test")]

mod rfc7635_tokens;
mod rfc8016_mobility;
mod rfc8489_credentials;
mod rfc8489_transactions;
mod rfc8656_data;
mod rfc8656_upkeep;
mod support;
