//! Test programs built by cargo.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Package name.
    pub(crate) package: String,
    /// Target name: `tests`, or the library's name for unit tests.
    pub(crate) target: String,
    /// Package directory, the working directory of tests as with `cargo test`.
    pub(crate) directory: PathBuf,
    /// Executable file.
    pub(crate) path: PathBuf,
}

/// Variable that adds the tests of MongoDB. The client takes minutes to compile.
pub(crate) const WITH_MONGODB: &str = "WITH_MONGODB";

/// Returns true if the tests of MongoDB are requested.
pub(crate) fn with_mongodb() -> bool {
    std::env::var_os(WITH_MONGODB).is_some_and(|value| !value.is_empty())
}

/// Builds the tests of all packages. A build of one package selects fewer features of shared
/// libraries, and compiles most of the workspace again.
///
/// # Errors
/// The tests do not compile. Cargo has printed the reason.
pub(crate) fn build_tests() -> Result<Vec<Program>> {
    let mut command = cargo();
    command.args([
        "test",
        "--locked",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    if with_mongodb() {
        command.args(["--features", "user-db/mongodb"]);
    }
    let out = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(out.status.success(), "the tests do not compile");
    let programs: Vec<Program> =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(program).collect();
    ensure!(!programs.is_empty(), "cargo names no program with tests");
    Ok(programs)
}

/// Returns a cargo command.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Reads a test program from a message of cargo.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let directory = manifest.parent()?.to_owned();
    Some(Program {
        package: directory.file_name()?.to_str()?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        directory,
        path: message["executable"].as_str()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_and_others_are_not() {
        let message = |is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/e2e/Cargo.toml","target":{{"name":"tests"}},"profile":{{"test":{is_test}}},"executable":"/x/target/e2e-1"}}"#
            )
        };
        let found = program(&message(true)).unwrap();
        assert_eq!((&*found.package, &*found.target), ("e2e", "tests"));
        assert_eq!(found.directory, PathBuf::from("/x/crates/e2e"));
        assert_eq!(program(&message(false)), None);
        assert_eq!(program("not JSON"), None);
    }
}
