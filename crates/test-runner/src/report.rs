//! Results of a run: printed during the run, summarised at the end, stored in files.

mod files;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::files::Directory;
use crate::checks::{Check, test_counts};
use crate::commit::Commit;
use crate::process::{Ended, Times};
use crate::test::{Outcome, Test, Verdict};

/// Number of slowest tests in the summary.
const SLOWEST: usize = 10;

/// Minimum duration for a line in the output of a passing test.
const NAMED_FROM: Duration = Duration::from_secs(2);

/// Result of a check.
#[derive(Debug)]
pub(crate) enum CheckResult {
    /// The check cannot run on this host. Contains the reason.
    Skipped(String),
    /// The command has exited.
    Ended(Ended),
}

/// Test that failed at the first try and passed at the second.
#[derive(Debug)]
struct SecondTry {
    name: String,
    first_output: String,
}

/// Results up to now.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: u64,
    /// Names and outputs of tests that failed twice.
    failed: Vec<(String, String)>,
    failed_checks: Vec<String>,
    skipped: Vec<String>,
    /// Tests that failed at the first try, and their outputs.
    waiting: Vec<(Test, String)>,
    second_tries: Vec<SecondTry>,
    times: BTreeMap<String, Times>,
    phases: Vec<(String, Duration)>,
    last: Directory,
}

impl Report {
    /// Returns the duration of a test in the previous run.
    pub(crate) fn last_duration(&self, name: &str) -> Option<Duration> {
        Some(self.last.times(name)?.duration)
    }

    /// Adds a phase of the run.
    pub(crate) fn phase(&mut self, name: &str, duration: Duration) {
        self.phases.push((name.to_owned(), duration));
    }

    /// Reports an error of the runner as a failed check.
    pub(crate) fn broken(&mut self, what: &str) {
        println!("FAILED {what}");
        self.failed_checks.push(what.to_owned());
    }

    /// Adds the result of a check.
    pub(crate) fn check(&mut self, check: &Check, result: Result<CheckResult>) {
        let name = format!("check: {}", check.name);
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.broken(&format!("{name}: {error:#}")),
        };
        let succeeded = result.is_success();
        match result {
            CheckResult::Skipped(reason) => {
                println!("skipped {name}: {reason}");
                self.skipped.push(format!("{name}: {reason}"));
            }
            CheckResult::Ended(ended)
                if succeeded && check.has_tests && test_counts(&ended.output)[0] == 0 =>
            {
                self.broken(&format!("{name}: no test ran\n{}", ended.output));
            }
            CheckResult::Ended(ended) if succeeded => {
                println!("{:7.1} s  {name}", ended.times.duration.as_secs_f64());
                let [passed, _, ignored] =
                    if check.has_tests { test_counts(&ended.output) } else { [1, 0, 0] };
                self.passed += passed;
                self.skipped.extend((0..ignored).map(|_| format!("{name}: ignored")));
                self.phases.push((name, ended.times.duration));
            }
            CheckResult::Ended(ended) => {
                println!(
                    "FAILED {name} ({:.1} s)\n{}",
                    ended.times.duration.as_secs_f64(),
                    ended.output
                );
                self.failed_checks.push(name);
            }
        }
    }

    /// Adds the first try of a test.
    pub(crate) fn test(&mut self, test: &Test, outcome: Result<Outcome>) {
        let name = test.full_name();
        let outcome = outcome.unwrap_or_else(|error| Outcome {
            verdict: Verdict::Failed(format!("{error:#}")),
            times: Times::default(),
        });
        let seconds = outcome.times.duration.as_secs_f64();
        let longest = self.times.entry(name.clone()).or_default();
        *longest = outcome.times.max(*longest);
        match outcome.verdict {
            Verdict::Passed => {
                self.passed += 1;
                if outcome.times.duration >= NAMED_FROM {
                    println!("{seconds:7.1} s  {name}");
                }
            }
            Verdict::Skipped(reason) => self.skipped.push(format!("{} {reason}", test.package())),
            Verdict::Failed(output) => {
                println!("FAILED at the first try: {name} ({seconds:.1} s)\n{output}\n");
                self.waiting.push((test.clone(), output));
            }
        }
    }

    /// Takes tests that failed at the first try, and their outputs.
    pub(crate) fn take_failed(&mut self) -> Vec<(Test, String)> {
        std::mem::take(&mut self.waiting)
    }

    /// Adds the second try of a test. A test that is skipped there has failed.
    pub(crate) fn second_try(
        &mut self,
        name: &str,
        first: &str,
        second: Result<Outcome>,
        duration: Duration,
    ) {
        let seconds = duration.as_secs_f64();
        let said = match second.map(|outcome| outcome.verdict) {
            Ok(Verdict::Passed) => {
                self.second_tries
                    .push(SecondTry { name: name.to_owned(), first_output: first.to_owned() });
                return;
            }
            Ok(Verdict::Skipped(reason)) => format!("skipped: {reason}"),
            Ok(Verdict::Failed(output)) => output,
            Err(error) => format!("{error:#}"),
        };
        println!("FAILED at the second try: {name} ({seconds:.1} s)\n{said}\n");
        self.failed.push((name.to_owned(), said));
    }

    /// Returns true if no check failed and no test failed twice.
    pub(crate) fn is_success(&self) -> bool {
        self.failed.is_empty() && self.failed_checks.is_empty()
    }

    /// Prints the summary. The last line has the counts.
    pub(crate) fn print(&self) {
        list("skipped:", &self.skipped);
        let line =
            |name: &str, duration: Duration| format!("{:7.1} s  {name}", duration.as_secs_f64());
        let mut slowest: Vec<_> = self.times.iter().collect();
        slowest.sort_by_key(|(_, times)| std::cmp::Reverse(times.duration));
        let slowest = slowest.into_iter().take(SLOWEST).map(|(name, times)| {
            let processor = times.processor.as_secs_f64();
            format!("{} ({processor:.1} s of processor time)", line(name, times.duration))
        });
        list("slowest tests:", &slowest.collect::<Vec<_>>());
        let phases = self.phases.iter().map(|(name, duration)| line(name, *duration));
        list("phases (checks and tests run at the same time):", &phases.collect::<Vec<_>>());
        let names: Vec<&str> = self.second_tries.iter().map(|one| &*one.name).collect();
        list("PASSED AT THE SECOND TRY, a fault to explain (see target/second-tries):", &names);
        list("failed checks:", &self.failed_checks);
        let names: Vec<&str> = self.failed.iter().map(|(name, _)| &**name).collect();
        list("failed (see target/failures):", &names);
        println!("\n{}", self.counts());
    }

    fn counts(&self) -> String {
        let failed = self.failed.len() + self.failed_checks.len();
        let second = match self.second_tries.len() {
            0 => String::new(),
            count => format!("{count} passed at the second try\n"),
        };
        format!("{second}{} passed, {failed} failed, {} skipped", self.passed, self.skipped.len())
    }

    /// Writes the commit before the run: an aborted run leaves no earlier result.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn begin(&self, commit: &Commit, chosen: &str) -> Result<()> {
        self.last
            .write_result(&format!("{commit}\nnot finished\n{chosen}\n"))
            .context("cannot write the commit")
    }

    /// Writes commit and result, second tries and durations to files in the target directory.
    /// `chosen` is the line about the selected checks and tests.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn keep(&self, commit: &Commit, chosen: &str) -> Result<()> {
        let verdict = if self.is_success() { "passed" } else { "failed" };
        let result = format!("{commit}\n{verdict}\n{chosen}\n{}\n", self.counts());
        self.last.write_result(&result).context("cannot write the result")?;
        self.last.write_times(&self.times).context("cannot write the times of the tests")?;
        let failures =
            self.failed.iter().map(|(name, said)| format!("== {name}, at {commit}\n{said}\n"));
        self.last
            .write_failures(&failures.collect::<String>())
            .context("cannot write the failures")?;
        for SecondTry { name, first_output } in &self.second_tries {
            let text = format!("== {name}, at {commit}\n{first_output}\n");
            self.last.add_second_try(&text).context("cannot write the second tries")?;
        }
        Ok(())
    }
}

/// Prints a heading and lines. Prints nothing if there are no lines.
fn list(heading: &str, lines: &[impl AsRef<str>]) {
    if !lines.is_empty() {
        println!("\n{heading}");
        lines.iter().for_each(|line| println!("  {}", line.as_ref().trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(verdict: Verdict) -> Result<Outcome> {
        Ok(Outcome { verdict, times: Times::default() })
    }

    #[test]
    fn a_second_try_is_neither_passed_nor_failed() {
        let mut report = Report::default();
        report.second_try("e2e a::b", "first output", outcome(Verdict::Passed), Duration::ZERO);
        assert!(report.is_success());
        assert_eq!(report.counts(), "1 passed at the second try\n0 passed, 0 failed, 0 skipped");
        let again = |said: fn(String) -> Verdict| outcome(said("again".to_owned()));
        report.second_try("e2e a::c", "", again(Verdict::Failed), Duration::ZERO);
        report.second_try("e2e a::d", "", again(Verdict::Skipped), Duration::ZERO);
        assert!(!report.is_success());
        assert_eq!(report.counts(), "1 passed at the second try\n0 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn a_check_that_fails_or_cannot_run_is_a_failure() {
        let mut report = Report::default();
        report.broken("no directory");
        assert!(!report.is_success());
        assert_eq!(report.counts(), "0 passed, 1 failed, 0 skipped");
    }
}
