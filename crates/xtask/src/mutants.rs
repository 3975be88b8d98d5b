//! Mutation testing with cargo-mutants: changes one expression at a time, and reports the changes
//! that no test of the crate notices.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::toolchain;

const INSTALL: &str = "cargo install --locked cargo-mutants";

/// Crates whose code decides about rights, limits, lengths, keys and fates.
const CRATES: [&str; 4] = ["stun-wire", "turn-proto", "turn-session", "state-format"];

/// Seconds until a run of the tests counts as a hang.
const TIMEOUT: &str = "--timeout=180";

/// Tests of a crate in its two quick programs. The others count instructions, which a change of any
/// code changes, or try interleavings; the examples in its documentation take longer to compile
/// than all its tests to run.
fn tests(root: &Path, name: &str) -> Vec<String> {
    let mut programs = vec!["--lib"];
    if root.join("crates").join(name).join("tests/main.rs").exists() {
        programs.extend(["--test", "tests"]);
    }
    programs.into_iter().map(|arg| format!("--cargo-test-arg={arg}")).collect()
}

/// Tests the mutants of a crate. `options` are options of cargo-mutants, such as `--file GLOB` or
/// `--shard 1/8`. Results are in `target/mutants/CRATE`.
///
/// # Errors
/// No such crate, cargo-mutants is not installed, the options select no mutant, or a mutant
/// survived.
pub(crate) fn run(root: &Path, name: &str, options: &[&str]) -> Result<()> {
    ensure!(CRATES.contains(&name), "{name}: no such crate; there are {}", CRATES.join(", "));
    let installed = Command::new("cargo").args(["mutants", "--version"]).output();
    let installed = installed.is_ok_and(|output| output.status.success());
    ensure!(installed, "cargo-mutants is not installed: {INSTALL}");
    ensure_mutants(&list(root, name, options)?, options)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mutants = root.join(target).join("mutants");
    let results = mutants.join(name);
    std::fs::create_dir_all(&results)
        .with_context(|| format!("cannot make {}", results.display()))?;
    // Compiled once for each mutant, and run for milliseconds; the simulated worlds of turn-proto
    // run for more than a minute without.
    let optimised = u8::from(name == "turn-proto");
    let status = Command::new("cargo")
        .args(["mutants", "--package", name, "--test-package", name, "--no-shuffle", TIMEOUT])
        .args(tests(root, name))
        .arg(format!("--cargo-arg=--config=profile.dev.package.{name}.opt-level={optimised}"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Dependencies stay compiled for the next run.
        .env("CARGO_TARGET_DIR", mutants.join("build"))
        .arg("--output")
        .arg(&results)
        .args(options)
        .current_dir(root)
        .status()
        .context("cannot run cargo mutants")?;
    ensure!(status.success(), "survivors are in {}/mutants.out/missed.txt", results.display());
    Ok(())
}

/// Returns the selected mutants, a line each.
fn list(root: &Path, name: &str, options: &[&str]) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["mutants", "--package", name]).args(options).current_dir(root);
    if !options.contains(&"--list") {
        cargo.arg("--list");
    }
    toolchain::output(&mut cargo)
}

/// cargo-mutants itself succeeds without mutants, for example if no file has the name in `--file`.
fn ensure_mutants(list: &str, options: &[&str]) -> Result<()> {
    ensure!(!list.trim().is_empty(), "no mutant is selected by: {}", options.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_crates_are_refused() {
        let refused = run(&crate::root(), "turnpike", &[]).unwrap_err().to_string();
        assert!(refused.starts_with("turnpike: no such crate; there are stun-wire"), "{refused}");
    }

    #[test]
    fn options_that_select_no_mutant_are_refused() {
        let refused = ensure_mutants("\n", &["--file", "typo"]).unwrap_err().to_string();
        assert_eq!(refused, "no mutant is selected by: --file typo");
        assert!(ensure_mutants("src/a.rs:1:1: replace f with ()\n", &[]).is_ok());
    }

    #[test]
    fn the_crates_exist() {
        for name in CRATES {
            assert!(crate::root().join("crates").join(name).join("Cargo.toml").exists(), "{name}");
        }
    }

    #[test]
    fn the_quick_programs_run() {
        let named = |name| tests(&crate::root(), name).join(" ").replace("--cargo-test-arg=", "");
        assert_eq!(named("state-format"), "--lib");
        assert_eq!(named("turn-proto"), "--lib --test tests");
    }
}
