//! Times of honest clients' operations next to attackers.
//!
//! `neighbours [--rounds N] [--operations N] [--seed N] [--only TEXT] [--services slow]`
//!
//! starts the server in a lab, as root. Attackers fill its tables and use up its budgets, one
//! attacker at a time. Honest clients of other networks, accounts and realms use the server at the
//! same time. Quiet and attacked phases alternate, each on a new server. The result is a table in
//! Markdown: for each attacker and operation the attacked times divided by the quiet times. With
//! `--services slow` the users are in a database, and a web service decides about each allocation;
//! both respond after 20 ms.
//!
//! The server has one processor, attackers and honest clients share another. The server and the
//! honest clients run before all other processes of the machine, attackers do not.
#![forbid(unsafe_code)]

mod attackers;
mod link;
mod operations;
mod phase;
mod scene;
mod services;
mod stun;
mod table;
mod weapons;

use std::process::ExitCode;

use attackers::Attacker;
use phase::{Measurements, Phase};
use scene::Scene;
use table::Row;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Options of the command line.
struct Options {
    rounds: u64,
    operations: usize,
    seed: u64,
    only: String,
    with_services: bool,
}

fn run() -> Result<(), String> {
    let options = options()?;
    // Threads and servers inherit it.
    lab_net::pin_thread(std::process::id(), 1).map_err(|error| format!("processor 1: {error}"))?;
    linux_net::raise_open_files().map_err(|error| format!("open files: {error}"))?;
    let users = options.operations + operations::UNKNOWN_USERS;
    let mut scene = Scene::new(users, options.with_services)?;
    println!(
        "seed {}, {} rounds, {} operations of each kind in a phase\n",
        options.seed, options.rounds, options.operations
    );
    let mut rows = Vec::new();
    for attacker in Attacker::ALL {
        if !attacker.name().contains(&options.only) {
            continue;
        }
        let mut row =
            Row { attacker, quiet: Measurements::default(), attacked: Measurements::default() };
        for round in 0..options.rounds {
            for (attacker, into) in [(None, &mut row.quiet), (Some(attacker), &mut row.attacked)] {
                let seed = options.seed + round;
                Phase { attacker, operations: options.operations, seed }.run(&mut scene, into);
            }
        }
        eprintln!("done: {}", attacker.name());
        rows.push(row);
    }
    table::print(&rows);
    Ok(())
}

fn options() -> Result<Options, String> {
    let only = String::new();
    let mut options = Options { rounds: 3, operations: 20, seed: 1, only, with_services: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word}: no number: {value}"));
        match word.as_str() {
            "--rounds" => options.rounds = number()?,
            "--operations" => options.operations = number()? as usize,
            "--seed" => options.seed = number()?,
            "--only" => options.only.clone_from(&value),
            "--services" => options.with_services = value == "slow",
            _ => return Err(format!("unknown option {word}: see the top of neighbours/main.rs")),
        }
    }
    Ok(options)
}
