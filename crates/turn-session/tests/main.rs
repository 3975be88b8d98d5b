//! Integration tests of this crate, as one program: each further program would be linked with the
//! complete crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod corpus;
mod dtls;
mod tls;
mod tls_moves;
mod tls_rules;
