//! `turnpike-bench`: measures TURN servers, this one and others.
//!
//! Invariant: all it does is done by the library, so that tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    turn_bench::cli::main()
}
