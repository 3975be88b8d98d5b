//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::packets::{FindMaxArgs, PeerArgs};
use crate::{compare, footprint, lab, load, programs, report};

/// Measures TURN servers: delivered packets, latency, CPU, memory.
#[derive(Debug, Parser)]
#[command(name = "turnpike-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sends to a server and tells what became of it
    Load(Box<load::LoadArgs>),
    /// Searches the highest rate of packets that a server delivers
    FindMax(Box<FindMaxArgs>),
    /// Is the other end of packets: counts them, sends them back, or sends, as it is told
    Peer(PeerArgs),
    /// Measures ways to relay UDP without TURN: what this machine can do
    Lab(lab::LabArgs),
    /// Measures how long the kernel path's programs take for a packet
    Programs(programs::ProgramsArgs),
    /// Opens allocations that nobody uses, and tells what memory and descriptors each costs the
    /// server
    Footprint(footprint::FootprintArgs),
    /// Compares servers on this machine: each in turn, round after round, under the same loads
    Compare(Box<compare::CompareArgs>),
    /// Does what `compare` says on standard input, in the network namespace of the clients
    #[command(hide = true)]
    Steps,
    /// Draws results as one page that can be read anywhere
    Report(report::ReportArgs),
}

/// Reads the command line and does what it says. Exit status 0: done; 1: it could not be done, and
/// why is on standard error; 2: the command line is wrong.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = match &command {
        Command::Load(args) => load::run(args),
        Command::FindMax(args) => args.run(),
        Command::Peer(args) => args.run(),
        Command::Lab(args) => lab::run(args),
        Command::Programs(args) => programs::run(args),
        Command::Footprint(args) => footprint::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Steps => compare::run_steps(),
        Command::Report(args) => report::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("turnpike-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
