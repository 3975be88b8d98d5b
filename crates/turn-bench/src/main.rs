//! `turnpike-bench`: measures TURN servers, this one and others.

use std::process::ExitCode;

fn main() -> ExitCode {
    turn_bench::cli::main()
}
