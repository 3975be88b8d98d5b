//! Runs the checks and tests of the workspace: `make test`.
//!
//! Each test runs in a separate process with a time limit. After the last test, each failed test
//! runs once more while no other test runs. Success there is reported as "passed at the second try"
//! and never counted as passed. The exit status is 0 if no check failed and no test failed twice.
#![forbid(unsafe_code)]

mod arguments;
mod autogroup;
mod busy;
mod cargo;
mod checks;
mod commit;
mod lanes;
mod limits;
mod process;
mod report;
mod skips;
mod test;

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::arguments::{Arguments, USAGE};
use crate::autogroup::LowPriority;
use crate::busy::BusyProcesses;
use crate::checks::Check;
use crate::report::Report;
use crate::test::Test;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == [busy::WORD] {
        busy::work();
    }
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match Arguments::parse(words.iter().map(String::as_str)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns false if a check or a test failed.
fn run(arguments: &Arguments) -> Result<bool> {
    let started = Instant::now();
    let mut report = Report::default();
    let commit = commit::current();
    let checks = if arguments.runs_checks { checks::all() } else { Vec::new() };

    let building = Instant::now();
    let programs = cargo::build_tests()?;
    report.phase("build of the tests", building.elapsed());
    let tests = chosen(arguments, &programs)?;
    report.begin(&commit, &arguments.chosen())?;

    let _low = LowPriority::of_session();
    let _busy = BusyProcesses::start(arguments.busy).context("cannot start a busy process")?;
    for round in 1..=arguments.rounds {
        if arguments.rounds > 1 {
            println!("round {round} of {}", arguments.rounds);
        }
        let of_first: &[Check] = if round == 1 { &checks } else { &[] };
        let running = Instant::now();
        let seeds = fresh_seeds();
        lanes::run(of_first, &tests, seeds, &mut report);
        report.phase(
            if of_first.is_empty() { "tests" } else { "tests and checks" },
            running.elapsed(),
        );
        let alone = Instant::now();
        if lanes::second_tries(seeds, &mut report)? {
            report.phase("second tries", alone.elapsed());
        }
    }
    report.phase("all", started.elapsed());
    report.print();
    report.keep(&commit.until(commit::current()), &arguments.chosen())?;
    Ok(report.is_success())
}

/// Lists the tests of all programs that the arguments select.
fn chosen(arguments: &Arguments, programs: &[cargo::Program]) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for program in programs {
        tests.extend(test::list(program)?);
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = tests.iter().map(Test::full_name).find(|name| !names.insert(name.clone()))
    {
        anyhow::bail!("two tests have the name {twice}");
    }
    let named = tests.iter().map(|test| (test.package(), test.full_name()));
    let without = arguments.without_tests(named);
    anyhow::ensure!(
        without.is_empty(),
        "no package, or no test has a name with {}",
        without.join(", ")
    );
    tests.retain(|test| arguments.includes(test.package(), &test.full_name()));
    anyhow::ensure!(!tests.is_empty(), "no test has such a name");
    Ok(tests)
}

/// Draws a start for the tests' fresh seeds.
fn fresh_seeds() -> u64 {
    RandomState::new().hash_one(0) >> 32
}
