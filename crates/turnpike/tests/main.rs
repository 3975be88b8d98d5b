//! Integration tests of this crate, as one program. Each further program would be linked with the
//! complete crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod command_line;
mod init;
mod tune;
