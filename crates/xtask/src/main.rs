//! Automation: `cargo xtask docs` writes the generated documentation, `cargo xtask bpf` compiles the
//! BPF programs, `cargo xtask fuzz` searches with the fuzz targets, `cargo xtask soak` looks for leaks,
//! `cargo xtask deny` and `cargo xtask tidy` check what the compiler does not (the same checks run as tests).
//!
//! Invariant: a task reads and writes this repository alone.
#![forbid(unsafe_code)]

mod bpf;
mod deny;
mod docs;
mod fuzz;
mod soak;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: cargo xtask bpf [--check] | deny | docs | fuzz --minutes N [TARGET…] | soak --minutes N | tidy
  bpf    compile crates/*/bpf/*.bpf.c to the objects that are committed beside them;
         with --check, only see whether those are what the sources compile to
  deny   check licences, sources and versions of dependencies by deny.toml
  docs   write docs/configuration.md, docs/configuration.schema.json and docs/operate/tuning.md
  fuzz   run the targets of fuzz/fuzz_targets, or some, for so many minutes each; new coverage goes to
         fuzz/corpus, crashes to fuzz/artifacts
  soak   have clients come and go for so many minutes, then look whether anything of them is left
  tidy   check the edges between crates, circles of files, the size of files, words that must not stay";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["bpf"] => bpf::write(&root()),
        ["bpf", "--check"] => bpf::check(&root()),
        ["docs"] => docs::write(&root()),
        ["deny"] => deny::run(&root()),
        ["fuzz", "--minutes", minutes, targets @ ..] => fuzz::run(&root(), minutes, targets),
        ["soak", "--minutes", minutes] => soak::run(&root(), minutes),
        ["tidy"] => check(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<()> {
    let slips = tidy::check(&root())?;
    for slip in &slips {
        eprintln!("{slip}");
    }
    anyhow::ensure!(slips.is_empty(), "{} to tidy", slips.len());
    Ok(())
}

/// The root of the workspace.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}
