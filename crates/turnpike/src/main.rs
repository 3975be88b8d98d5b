//! Program of the TURN server with its commands. This crate assembles the parts. The protocol's
//! rules are in `turn-proto`, and packet processing is in `dataplane`.
#![forbid(unsafe_code)]

mod accounts;
mod alternates;
mod any_certificate;
mod asking;
mod authorities;
mod authorizer;
mod boot;
mod certificate_watch;
mod certificates;
mod cli;
mod commands;
mod confinement;
mod confirmation;
mod control_group;
mod cores;
mod coturn;
mod data_directory;
mod devices;
mod duration;
mod escape;
mod external;
mod failure;
mod file_reading;
mod file_writer;
mod findings;
mod first_start;
mod handover;
mod host;
mod host_watch;
mod json_object;
mod listener_test;
mod listeners;
mod logging;
mod minting;
mod new_files;
mod offload;
mod output;
mod own_addresses;
mod paths;
mod port_sharers;
mod process;
mod redis_statistics;
mod relay_prefixes;
mod relays;
mod reload;
mod reload_job;
mod renewal;
mod requests;
mod restart;
mod revocations;
mod revoking;
mod server;
mod service_manager;
mod session_records;
mod signals;
mod signed_tokens;
mod sockets;
mod start_facts;
mod tables;
#[cfg(test)]
mod testing;
mod throttle;
mod unread;
mod upgrade_command;
mod uri;
mod users;
mod warnings;
mod watchdog;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "turnadmin") {
        let words = words.map(|word| word.to_string_lossy().into_owned());
        return commands::turnadmin::run(&words.collect::<Vec<_>>());
    }
    if Path::new(&name).file_name().is_some_and(|name| name == "turnserver") {
        let words = words.map(|word| word.to_string_lossy().into_owned());
        // Coturn exits with -1 for every error.
        return end(commands::turnserver::run(words).map(|()| ExitCode::SUCCESS), |_| 255.into());
    }
    end(run(Cli::parse()), failure::Failure::exit_code)
}

fn end(ended: failure::Result<ExitCode>, code: fn(&failure::Failure) -> ExitCode) -> ExitCode {
    ended.unwrap_or_else(|failure| {
        eprintln!("{}", escape::lines(&failure.to_string()));
        code(&failure)
    })
}

fn run(cli: Cli) -> failure::Result<ExitCode> {
    let paths = &cli.paths;
    match cli.command.unwrap_or_else(|| Command::Run(cli::Run::default())) {
        Command::Run(args) => commands::run::run(&args.paths(paths)?),
        Command::Init(args) => commands::init::run(paths, &args),
        Command::Check(args) => return commands::check::run(paths, &args),
        Command::User(args) => commands::user::run(paths, args),
        Command::Token(args) => commands::token::run(paths, args),
        Command::Credentials(args) => commands::credentials::run(paths, &args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Probe(args) => return commands::probe::run(paths, &args),
        Command::Status(args) => commands::status::run(paths, &args),
        Command::Sessions(args) => commands::sessions::list(paths, &args),
        Command::Session(args) => commands::sessions::act(paths, &args),
        Command::Why(args) => commands::why::run(paths, &args),
        Command::LogLevel(args) => commands::log_level::run(paths, &args),
        Command::Reload(args) => commands::reload::run(paths, args),
        Command::Upgrade(args) => commands::upgrade::run(paths, &args),
        Command::Keep => commands::keep::run(paths),
        Command::Drain(args) => commands::drain::run(paths, &args),
        Command::Tune(args) => commands::tune::run(paths, &args),
        Command::Import(args) => return commands::import::run(paths, &args),
        Command::Turnadmin(args) => return Ok(commands::turnadmin::run(&args.words)),
        Command::Reference(args) => commands::reference::run(&args),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Manual(args) => commands::manual::pages(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}
