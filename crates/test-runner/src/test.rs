//! Single tests.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::cargo::Program;
use crate::limits::{self, Lane};
use crate::process::{self, End, Times};
use crate::skips;

/// Test in a program.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    program: Program,
    name: String,
}

/// Result of a try.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Verdict.
    pub(crate) verdict: Verdict,
    /// Times of the process.
    pub(crate) times: Times,
}

/// Verdict of a try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The test passed.
    Passed,
    /// The test cannot run on this host. Contains one reason per line.
    Skipped(String),
    /// The test failed. Contains the output, and a last line if the time limit passed.
    Failed(String),
}

/// Lists the tests of a program.
///
/// # Errors
/// The program cannot be run, or lists no tests.
pub(crate) fn list(program: &Program) -> Result<Vec<Test>> {
    let out = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.directory)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", program.path.display()))?;
    ensure!(out.status.success(), "{} does not list its tests", program.path.display());
    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
    names(&lines)
        .map(|names| {
            names.map(|name| Test { program: program.clone(), name: name.to_owned() }).collect()
        })
        .with_context(|| format!("{} has no test harness", program.path.display()))
}

/// Reads a list of tests. Returns `None` if a line is no test: programs without a harness ignore
/// `--list`.
fn names(list: &str) -> Option<impl Iterator<Item = &str>> {
    let lines = list.lines().map(|line| line.strip_suffix(": test"));
    lines.clone().all(|name| name.is_some()).then(|| lines.flatten())
}

/// Circumstances of a try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try<'a> {
    /// Directory for temporary files.
    pub(crate) directory: &'a Path,
    /// Priority of the process.
    pub(crate) nice: i32,
    /// Start of the fresh seeds. A second try with the same start repeats the first one's seeds.
    pub(crate) seeds: u64,
}

impl Test {
    /// Returns package and name, such as `e2e upgrade::calls_continue`. Special targets are part of
    /// the name, such as `turn-proto costs::binding`.
    pub(crate) fn full_name(&self) -> String {
        let Program { package, target, .. } = &self.program;
        let is_usual = target == "tests" || target.replace('-', "_") == package.replace('-', "_");
        let of = if is_usual { String::new() } else { format!("{target}::") };
        format!("{package} {of}{}", self.name)
    }

    /// Returns the lane of the test.
    pub(crate) fn lane(&self) -> Lane {
        limits::lane(&self.program.package, &self.full_name())
    }

    /// Returns the package name.
    pub(crate) fn package(&self) -> &str {
        &self.program.package
    }

    /// Runs the test in a separate process.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn run(&self, Try { directory, nice, seeds }: Try<'_>) -> Result<Outcome> {
        let file = self.full_name().replace([' ', ':', '/'], "_");
        let skips = directory.join(format!("{file}.skipped"));
        let mut command = Command::new("nice");
        command.args(["-n", &nice.to_string()]).arg(&self.program.path);
        command.args(["--exact", &self.name, "--nocapture", "--test-threads=1"]);
        command.current_dir(&self.program.directory).env("SKIPPED_TESTS", &skips);
        command.env("FRESH_SEEDS", seeds.to_string());
        let limit = limits::time_limit(&self.program.package, &self.full_name());
        let ended = process::run(&mut command, limit, &directory.join(format!("{file}.log")))?;
        let skipped = std::fs::read_to_string(&skips).unwrap_or_default();
        let _ = std::fs::remove_file(&skips);
        let verdict = match ended.end {
            End::Success if !skipped.is_empty() && self.may_be_skipped() => {
                Verdict::Skipped(skipped.trim_end().to_owned())
            }
            End::Success if !skipped.is_empty() => {
                Verdict::Failed(format!("skipped, but every test is requested: {skipped}"))
            }
            End::Success => of_output(&self.name, &ended.output),
            End::Failure => Verdict::Failed(ended.output),
            End::TimeLimit => Verdict::Failed(format!(
                "{}\nended at its time limit of {} s",
                ended.output,
                limit.as_secs()
            )),
        };
        Ok(Outcome { verdict, times: ended.times })
    }

    fn may_be_skipped(&self) -> bool {
        !skips::every_test() || skips::is_expected(&self.full_name())
    }
}

/// Returns the verdict for a program with exit status 0: the test passed or is ignored. Anything
/// else is a failure.
fn of_output(name: &str, output: &str) -> Verdict {
    let ignored = format!("test {name} ... ignored");
    if let Some(line) = output.lines().find(|line| line.starts_with(&ignored)) {
        let reason = line[ignored.len()..].trim_start_matches([',', ' ']);
        return Verdict::Skipped(format!("{name}: ignored {reason}"));
    }
    if output.contains("test result: ok. 1 passed;") {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{output}\nthe program did not run the test"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_did_not_run_has_not_passed() {
        let nothing = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out\n";
        assert!(matches!(of_output("a::b", nothing), Verdict::Failed(_)));
        let passed =
            "running 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(of_output("a::b", passed), Verdict::Passed);
        let ignored = "running 1 test\ntest a::b ... ignored, by hand\n\ntest result: ok. 0 passed; 0 failed; 1 ignored\n";
        assert_eq!(
            of_output("a::b", ignored),
            Verdict::Skipped("a::b: ignored by hand".to_owned())
        );
    }

    #[test]
    fn a_program_without_a_harness_lists_no_tests() {
        let of = |list| names(list).map(|names| names.collect::<Vec<_>>());
        assert_eq!(of("a::b: test\nc: test\n"), Some(vec!["a::b", "c"]));
        assert_eq!(of(""), Some(Vec::new()));
        assert_eq!(of("everything works\n"), None);
    }

    #[test]
    fn programs_of_their_own_are_named() {
        let test = |package: &str, target: &str| {
            let program = Program {
                package: package.to_owned(),
                target: target.to_owned(),
                directory: "/".into(),
                path: "/bin/true".into(),
            };
            Test { program, name: "a::b".to_owned() }.full_name()
        };
        assert_eq!(test("turn-proto", "turn_proto"), "turn-proto a::b");
        assert_eq!(test("turn-proto", "tests"), "turn-proto a::b");
        assert_eq!(test("turn-proto", "costs"), "turn-proto costs::a::b");
    }
}
