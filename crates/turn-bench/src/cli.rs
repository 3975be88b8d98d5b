//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::packets::{FindMaxArgs, PeerArgs};
use crate::{compare, footprint, lab, load, programs, report, table};

/// Measures TURN servers: delivered packets, latency, CPU, memory.
#[derive(Debug, Parser)]
#[command(name = "turnpike-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send packets or requests to a server, and report the result
    Load(Box<load::LoadArgs>),
    /// Search the highest rate of packets that a server delivers
    FindMax(Box<FindMaxArgs>),
    /// Serve as the peer: count packets, echo them, or send, as the load requests
    Peer(PeerArgs),
    /// Measure ways to relay UDP without TURN, as a bound for this machine
    Lab(lab::LabArgs),
    /// Measure the time of the kernel path's programs per packet
    Programs(programs::ProgramsArgs),
    /// Measure the server's memory and descriptors per idle allocation
    Footprint(footprint::FootprintArgs),
    /// Compare servers on this machine: each in turn, round after round, under the same loads
    Compare(Box<compare::CompareArgs>),
    /// Make the summary table: Turnpike's ways beside coturn's defaults and its fastest options,
    /// over each transport
    Table(table::TableArgs),
    /// Run the plan of `compare` on standard input, in the network namespace of the clients
    #[command(hide = true)]
    Steps,
    /// Write results as one HTML page
    Report(report::ReportArgs),
}

/// Runs the command line. Exit status 0: done; 1: failed, with the reason on standard error; 2:
/// wrong command line.
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
        Command::Table(args) => table::run(args),
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
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// No page names a command or an option that does not exist.
    #[test]
    fn commands_of_the_documentation_exist() {
        let commands = test_support::documented_commands("turnpike-bench");
        assert!(commands.len() > 10, "{commands:?}");
        for command in commands {
            let Err(error) = Cli::try_parse_from(&command.words) else { continue };
            let kind = error.kind();
            let asks = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            let stands_for_others = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::InvalidValue,
                ErrorKind::ValueValidation,
            ];
            let fine = asks.contains(&kind) || command.named && stands_for_others.contains(&kind);
            assert!(fine, "{}: {}\n{error}", command.page.display(), command.words.join(" "));
        }
    }
}
