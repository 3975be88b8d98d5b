//! Integration tests of this crate, as one program: each further program would be linked with the
//! complete crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod coturn_servers;
mod directory;
mod outages;
mod sqlite;
mod support;
mod unusable_rows;
