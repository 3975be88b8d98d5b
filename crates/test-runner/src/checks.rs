//! Checks: commands that succeed or fail.

use std::process::Command;

use crate::cargo;

/// Check.
#[derive(Debug)]
pub(crate) struct Check {
    /// Name in the output.
    pub(crate) name: &'static str,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Reason to skip the check on this host.
    pub(crate) missing: Option<String>,
    /// The output has result lines of test programs, which are added to the totals.
    pub(crate) has_tests: bool,
}

/// Returns all checks, in starting order.
pub(crate) fn all() -> Vec<Check> {
    let mut checks = vec![
        check("formatting", "cargo fmt --all --check"),
        check("lints", "cargo clippy --locked --workspace --all-targets --quiet -- -D warnings"),
        check(
            "documentation",
            "cargo doc --locked --workspace --no-deps --document-private-items --quiet",
        ),
        check(
            "build without features",
            "cargo check --locked --no-default-features --quiet -p turnpike",
        ),
        Check {
            has_tests: true,
            ..check(
                "tests in the documentation",
                "cargo test --locked --workspace --doc --no-fail-fast",
            )
        },
    ];
    let mongodb =
        "cargo clippy --locked -p user-db --all-targets --features mongodb --quiet -- -D warnings";
    let without = (!cargo::with_mongodb()).then(|| {
        format!(
            "{}=1 runs them and the tests of MongoDB, in some three minutes more",
            cargo::WITH_MONGODB
        )
    });
    checks.push(Check { missing: without, ..check("lints of MongoDB", mongodb) });
    checks
}

fn check(name: &'static str, command: &str) -> Check {
    let command = command.split_whitespace().map(str::to_owned).collect();
    Check { name, command, missing: None, has_tests: false }
}

impl Check {
    /// Returns the command for the given priority. Warnings of rustdoc are errors.
    pub(crate) fn command(&self, nice: i32) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", &nice.to_string()]).args(&self.command);
        command.env("RUSTDOCFLAGS", "-D warnings");
        command
    }
}

/// Adds up passed, failed and ignored tests in the output of `cargo test`.
pub(crate) fn test_counts(output: &str) -> [u64; 3] {
    let mut sums = [0; 3];
    for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let counts = line.split([' ', ';']).collect::<Vec<_>>();
        for (sum, word) in sums.iter_mut().zip(["passed", "failed", "ignored"]) {
            let at = counts.iter().position(|found| *found == word);
            *sum += at
                .and_then(|at| counts[at.checked_sub(1)?].parse::<u64>().ok())
                .unwrap_or_default();
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_programs_are_added() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\nx\n\
                      test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(test_counts(output), [7, 2, 1]);
        assert_eq!(test_counts("error: no such command"), [0, 0, 0]);
    }

    #[test]
    fn the_lints_are_errors() {
        let checks = all();
        let lints = checks.iter().find(|check| check.name == "lints").expect("a check");
        assert!(lints.command.ends_with(&["-D".to_owned(), "warnings".to_owned()]));
    }
}
