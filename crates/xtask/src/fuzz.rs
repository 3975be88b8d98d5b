//! Coverage-guided fuzzing with libFuzzer. The compiler of this workspace instruments the code;
//! neither cargo-fuzz nor a nightly compiler is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Counters on edges and comparisons, where libFuzzer looks for them.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Seconds until an input counts as a hang.
const TIMEOUT: u32 = 30;

const PROFILE: &str = "fuzz";

/// Fuzzes each of `targets` (all if empty) for `minutes`, then adds the inputs that reach new edges
/// to the committed corpus, smallest first.
///
/// # Errors
/// No such target, no compiler for libFuzzer, or an input that crashed a target.
pub(crate) fn run(root: &Path, minutes: &str, targets: &[&str]) -> Result<()> {
    let seconds = minutes.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
    let seconds =
        seconds.with_context(|| format!("--minutes {minutes}: not a positive number"))? * 60.0;
    let known = targets_of(root)?;
    if let Some(unknown) = targets.iter().find(|target| !known.iter().any(|one| one == *target)) {
        bail!("{unknown}: no such target; there are {}", known.join(", "));
    }
    let chosen = known.iter().filter(|one| targets.is_empty() || targets.contains(&one.as_str()));
    let programs = build(root)?;
    let mut crashed = Vec::new();
    for target in chosen {
        let target = Target::new(root, &programs, target)?;
        if !target.search(seconds as u64)? {
            crashed.push(target.artifacts.display().to_string());
        }
        target.keep()?;
    }
    ensure!(crashed.is_empty(), "inputs that crash are in {}", crashed.join(", "));
    Ok(())
}

/// Names of the targets, in order.
fn targets_of(root: &Path) -> Result<Vec<String>> {
    let directory = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in directory.read_dir().context("cannot list the fuzz targets")? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Compiles every target; returns the directory of the programs.
fn build(root: &Path) -> Result<PathBuf> {
    // Named, so that build scripts and procedural macros are not instrumented.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--package=turnpike-fuzz", "--bins"])
        .args([&format!("--profile={PROFILE}"), &format!("--target={triple}")])
        .env("RUSTFLAGS", FLAGS.join(" "))
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the targets do not compile; libFuzzer wants a C++ compiler: scripts/install-packages build"
    );
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(root.join(target).join(triple).join(PROFILE))
}

/// A target and its directories, each of which exists.
struct Target {
    program: PathBuf,
    /// Committed inputs.
    corpus: PathBuf,
    /// Inputs of this and earlier searches on this machine.
    found: PathBuf,
    artifacts: PathBuf,
}

impl Target {
    fn new(root: &Path, programs: &Path, name: &str) -> Result<Self> {
        let directory = |kind: &str| {
            let path = root.join("fuzz").join(kind).join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
            anyhow::Ok(path)
        };
        Ok(Self {
            program: programs.join(name),
            corpus: directory("corpus")?,
            found: directory("found")?,
            artifacts: directory("artifacts")?,
        })
    }

    /// False if an input crashed the target.
    fn search(&self, seconds: u64) -> Result<bool> {
        let status = Command::new(&self.program)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-timeout={TIMEOUT}"))
            .arg(format!("-artifact_prefix={}/", self.artifacts.display()))
            .arg("-print_final_stats=1")
            .args([&self.found, &self.corpus])
            .status()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(status.success())
    }

    /// Adds the inputs to the corpus that reach new edges. The number of passes of an edge does not
    /// count: that would keep thousands.
    fn keep(&self) -> Result<()> {
        let status = Command::new(&self.program)
            .args(["-merge=1", "-use_counters=0"])
            .arg(format!("-artifact_prefix={}/", self.artifacts.display()))
            .args([&self.corpus, &self.found])
            .status()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        ensure!(status.success(), "cannot merge into {}", self.corpus.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_corpus_that_the_tests_replay() {
        for target in targets_of(&crate::root()).unwrap() {
            let corpus = crate::root().join("fuzz/corpus").join(&target);
            assert!(corpus.read_dir().is_ok_and(|mut files| files.next().is_some()), "{target}");
        }
    }

    #[test]
    fn unknown_targets_and_minutes_are_refused_before_anything_is_compiled() {
        let refused = |minutes, targets: &[&str]| {
            run(&crate::root(), minutes, targets).unwrap_err().to_string()
        };
        assert!(
            refused("1", &["packets"])
                .contains("packets: no such target; there are attribute_values")
        );
        assert!(refused("0", &[]).contains("not a positive number"));
        assert!(refused("soon", &[]).contains("not a positive number"));
    }
}
