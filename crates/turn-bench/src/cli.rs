//! The command line.

use std::process::ExitCode;

use clap::Parser;

/// Measures TURN servers: delivered packets, latency, CPU, memory.
#[derive(Debug, Parser)]
#[command(name = "turnpike-bench", version, about)]
struct Cli {}

/// Reads the command line and does what it says. Exit status 0: done; 1: it could not be done, and
/// why is on standard error; 2: the command line is wrong.
#[must_use]
pub fn main() -> ExitCode {
    let Cli {} = Cli::parse();
    ExitCode::SUCCESS
}
