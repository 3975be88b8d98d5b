//! Programs of tests, as cargo builds them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its package.
    pub(crate) package: String,
    /// The target: `tests`, or the name of the library for its unit tests.
    pub(crate) target: String,
    /// The package's directory, in which its tests run as with `cargo test`.
    pub(crate) directory: PathBuf,
    /// The executable file.
    pub(crate) path: PathBuf,
}

/// The variable that adds the tests of MongoDB, whose client takes minutes to compile.
pub(crate) const WITH_MONGODB: &str = "WITH_MONGODB";

/// True if the tests of MongoDB are wanted.
pub(crate) fn with_mongodb() -> bool {
    std::env::var_os(WITH_MONGODB).is_some_and(|value| !value.is_empty())
}

/// Builds the tests of all packages. Those of one package would be built with other features of the
/// libraries that packages share, and with them half of everything.
///
/// # Errors
/// They do not compile; cargo has said why.
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

/// A cargo command, in the workspace that this program is built from.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The program of a message of cargo, if it is about one with tests.
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
