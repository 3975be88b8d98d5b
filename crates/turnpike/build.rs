//! Tells the program which commit it is built from, for `--version`.
//!
//! `TURNPIKE_COMMIT` decides, which builders of packages may set; else the working copy of git
//! around the source. A build from an archive has neither, and says "unknown".

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=TURNPIKE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("TURNPIKE_COMMIT").ok().and_then(|text| word(&text));
    let commit = given.or_else(of_git).unwrap_or_else(|| "unknown".to_owned());
    // Cargo hands it on to programs that it runs, where a name like `TURNPIKE_COMMIT` would be a
    // setting.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
}

/// The commit of the working copy, if this source belongs to it: an archive that is unpacked inside
/// another project must not get that project's commit.
fn of_git() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // Each commit and each checkout adds a line to this log.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).is_file() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// The answer of git about this directory, in a word.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    word(&text)
}

/// The text, if it is a single word.
fn word(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    words.next().filter(|_| words.next().is_none()).map(str::to_owned)
}
