//! Automation: `cargo xtask docs` writes the generated documentation, `cargo xtask bpf` compiles
//! the BPF programs, `cargo xtask fuzz` runs the fuzz targets, `cargo xtask soak` searches for
//! leaks, `cargo xtask deny` and `cargo xtask tidy` run checks beyond the compiler's (the same
//! checks run as tests). `cargo xtask no-std` and `cargo xtask cross` compile without std and for
//! the other architecture, `cargo xtask sanitize` runs tests under sanitizers, `cargo xtask release
//! --check` reports what a release lacks.
//!
//! Invariant: a task reads and writes this repository and cargo's target directory alone.
#![forbid(unsafe_code)]

mod bounds;
mod bpf;
mod chart;
mod cross;
mod debian;
mod deny;
mod docs;
mod fuzz;
mod mutants;
mod no_std;
mod release;
mod sanitize;
mod soak;
mod tidy;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: cargo xtask bpf [--check] | chart | cross [--all] | deny | docs | fuzz --minutes N [TARGET…] | mutants CRATE [OPTION…] | no-std
             | release --check | sanitize [address|thread] [CRATE…] | soak --minutes N | tidy | words [--lower | CRATE | FILE]
  bpf    compile crates/*/bpf/*.bpf.c to the committed objects beside them;
         with --check, only verify that they match the sources
  chart  test the Helm chart with helm, which is built first
  cross  check the product for the other processor architecture, aarch64 or x86-64; with --all, every
         crate with its tests
  deny   check licences, sources and versions of dependencies by deny.toml
  docs   write the generated pages, among them docs/configuration.md and docs/operate/bounds.md
  fuzz   run all or the given targets of fuzz/fuzz_targets for N minutes each; new coverage goes to
         fuzz/corpus, crashes to fuzz/artifacts
  mutants  test the tests of CRATE with cargo-mutants and its OPTIONs, such as --file 'src/policy/**'; survivors
         are in target/mutants
  no-std check that the crates with #![no_std] and their dependencies build without std
  release --check  report what a release of the version in Cargo.toml lacks: changelog, versions of the packages,
         generated pages, commits, a new tag
  sanitize  run tests of the crates with unsafe code, or of each CRATE, under the address and thread
         sanitizers
  soak   connect and disconnect clients for N minutes, then check for leaks
  tidy   check dependencies between crates, circular imports, file sizes, leftovers, width of comments,
         test files that never run, wording, the inventory of bounds
  words  print pronouns, openings of doc comments and phrases per 1,000, by crate; with a CRATE (or a
         folder of docs), its worst files and lines with what to write instead; with a FILE, all of its lines;
         with --lower, lower the bounds in crates/xtask/words/bounds.tsv to these rates";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["bpf"] => bpf::write(&root()),
        ["bpf", "--check"] => bpf::check(&root()),
        ["chart"] => chart::run(&root()),
        ["cross"] => cross::run(&root(), false),
        ["cross", "--all"] => cross::run(&root(), true),
        ["docs"] => docs::write(&root()),
        ["deny"] => deny::run(&root()),
        ["fuzz", "--minutes", minutes, targets @ ..] => fuzz::run(&root(), minutes, targets),
        ["mutants", name, options @ ..] => mutants::run(&root(), name, options),
        ["no-std"] => no_std::run(&root()),
        ["release", "--check"] => release::check(&root()),
        ["sanitize", arguments @ ..] => sanitize::run(&root(), arguments),
        ["soak", "--minutes", minutes] => soak::run(&root(), minutes),
        ["tidy"] => check(),
        ["words"] => tidy::words::print(&root(), None),
        ["words", "--lower"] => tidy::words::lower(&root()),
        ["words", name] => tidy::words::print(&root(), Some(name)),
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
    println!("nothing to tidy");
    Ok(())
}

/// The root of the workspace.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}
