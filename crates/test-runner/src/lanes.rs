//! Runs checks and tests concurrently, then failed tests one by one.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::checks::Check;
use crate::limits::{COMPUTING_NICE, COMPUTING_PER_CORE, Lane, WAITING};
use crate::process::{self, End};
use crate::report::{CheckResult, Report};
use crate::test::{Outcome, Test, Try};

/// Time limit of a check: six times the first compilation on two cores.
const CHECK_LIMIT: Duration = Duration::from_secs(1800);

/// Priority (nice) of tests in [`Lane::Waiting`].
const USUAL: i32 = 0;

/// Finished check or test.
enum Done<'a> {
    Check(&'a Check, Result<CheckResult>),
    Test(&'a Test, Result<Outcome>),
}

/// Runs the checks one by one, because cargo locks the build directory, and concurrently the tests
/// of each lane. `seeds` is the start of the tests' fresh seeds.
pub(crate) fn run(checks: &[Check], tests: &[Test], seeds: u64, report: &mut Report) {
    let work = std::env::temp_dir().join(format!("run-tests-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&work) {
        report.broken(&format!("{}: {error}", work.display()));
        return;
    }
    let queue =
        |lane| Mutex::new(longest_first(tests.iter().filter(|test| test.lane() == lane), report));
    let (waiting, computing) = (queue(Lane::Waiting), queue(Lane::Computing));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (sender, done) = channel();
    std::thread::scope(|scope| {
        scope.spawn({
            let (sender, work) = (sender.clone(), &work);
            move || run_checks(checks, work, &sender)
        });
        let workers = std::iter::repeat_n((&waiting, USUAL), WAITING)
            .chain(std::iter::repeat_n((&computing, COMPUTING_NICE), COMPUTING_PER_CORE * cores));
        for (queue, nice) in workers {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || {
                while let Some(test) = take(queue) {
                    let outcome = test.run(Try { directory: work, nice, seeds });
                    // The receiver lives as long as this scope.
                    let _ = sender.send(Done::Test(test, outcome));
                }
            });
        }
        drop(sender);
        for done in done {
            match done {
                Done::Check(check, result) => report.check(check, result),
                Done::Test(test, outcome) => report.test(test, outcome),
            }
        }
    });
    let _ = std::fs::remove_dir_all(&work);
}

fn take<'a>(queue: &Mutex<VecDeque<&'a Test>>) -> Option<&'a Test> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Sorts tests by the duration of the previous run, longest first: a long test that starts last
/// would prolong the run. Tests without a duration are the first.
fn longest_first<'a>(tests: impl Iterator<Item = &'a Test>, report: &Report) -> VecDeque<&'a Test> {
    let mut tests: Vec<&Test> = tests.collect();
    tests.sort_by_key(|test| {
        std::cmp::Reverse(report.last_duration(&test.full_name()).unwrap_or(Duration::MAX))
    });
    tests.into()
}

fn run_checks<'a>(checks: &'a [Check], work: &Path, sender: &Sender<Done<'a>>) {
    for check in checks {
        let log = work.join(format!("check-{}.log", check.name.replace(' ', "-")));
        let result = match &check.missing {
            Some(reason) => Ok(CheckResult::Skipped(reason.clone())),
            None => process::run(&mut check.command(COMPUTING_NICE), CHECK_LIMIT, &log)
                .with_context(|| format!("the check of {}", check.name))
                .map(CheckResult::Ended),
        };
        // The receiver lives as long as this thread.
        let _ = sender.send(Done::Check(check, result));
    }
}

/// Runs failed tests once more, one by one, with the same seeds. Returns false if no test failed.
///
/// # Errors
/// The temporary directory cannot be created.
pub(crate) fn second_tries(seeds: u64, report: &mut Report) -> Result<bool> {
    let failed = report.take_failed();
    if failed.is_empty() {
        return Ok(false);
    }
    let work = std::env::temp_dir().join(format!("run-tests-{}-again", std::process::id()));
    std::fs::create_dir_all(&work).with_context(|| format!("{}", work.display()))?;
    for (test, first) in failed {
        let name = test.full_name();
        println!("again, alone: {name}");
        let started = Instant::now();
        let second = test.run(Try { directory: &work, nice: USUAL, seeds });
        report.second_try(&name, &first, second, started.elapsed());
    }
    let _ = std::fs::remove_dir_all(&work);
    Ok(true)
}

impl CheckResult {
    /// Returns true unless the check failed.
    pub(crate) fn is_success(&self) -> bool {
        match self {
            Self::Skipped(_) => true,
            Self::Ended(ended) => ended.end == End::Success,
        }
    }
}
