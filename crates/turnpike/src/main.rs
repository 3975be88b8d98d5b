//! The server and the commands around it. Puts the pieces together; the rules of the protocol are
//! in `turn-proto`, the packets in `dataplane`.
#![forbid(unsafe_code)]

mod boot;
mod certificates;
mod cli;
mod commands;
mod confinement;
mod cores;
mod duration;
mod escape;
mod failure;
mod first_start;
mod host;
mod host_watch;
mod logging;
mod offload;
mod output;
mod own_addresses;
mod place;
mod reload;
mod server;
mod signals;
mod sockets;
#[cfg(test)]
mod testing;
mod uri;
mod users;
mod warnings;
mod watchdog;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{}", escape::lines(&failure.to_string()));
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> failure::Result<ExitCode> {
    let place = &cli.place;
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => commands::run::run(place),
        Command::Check(args) => commands::check::run(place, &args),
        Command::User(args) => commands::user::run(place, args),
        Command::Credentials(args) => commands::credentials::run(place, &args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Probe(args) => return commands::probe::run(&args),
        Command::Status(args) => commands::status::run(place, &args),
        Command::Sessions(args) => commands::sessions::list(place, &args),
        Command::Session(args) => commands::sessions::act(place, &args),
        Command::Reload(args) => commands::reload::run(place, args),
        Command::Drain(args) => commands::drain::run(place, &args),
        Command::Tune(args) => commands::tune::run(place, &args),
        Command::Reference(args) => commands::reference::run(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}
