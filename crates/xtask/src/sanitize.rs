//! Tests under two sanitizers of the compiler: memory errors and leaks (address), data races
//! (thread). The stable compiler has the runtimes; `RUSTC_BOOTSTRAP` permits the flag.
//!
//! The thread sanitizer must observe the synchronisation in std, or it reports races that do not
//! exist. So it needs std compiled from source: rustup's component rust-src, or a compiler of
//! Debian with its source.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::debian;
use crate::toolchain::{self, Compiler};

/// Crates with `unsafe` code or with the threads of the data plane.
const CRATES: [&str; 3] = ["linux-net", "xdp-relay", "dataplane"];

/// Package of Debian with the source of std, below `usr/src`.
const SOURCE: &str = "rust-web-src";

/// Directory of std's source in a sysroot, where cargo searches for it.
const SYSROOT_SOURCE: &str = "lib/rustlib/src/rust";

/// Variable with the path of a file, to which each skipped test adds a line (`test_support::skip`).
const SKIPPED_TESTS: &str = "SKIPPED_TESTS";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sanitizer {
    Address,
    Thread,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }
}

/// Runs the tests of crates under one sanitizer or under both: `[address|thread] [CRATE…]`.
///
/// # Errors
/// A crate does not exist or does not compile, a test fails or is skipped, or a sanitizer reports
/// an error.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let (sanitizers, crates) = parse(root, arguments)?;
    let mut failed = Vec::new();
    for sanitizer in sanitizers {
        println!("{} sanitizer: {}", sanitizer.name(), crates.join(", "));
        let mut cargo = test(root, sanitizer, &crates)?;
        let skips = toolchain::target_directory(root).join(format!("skipped-{}", sanitizer.name()));
        fs::write(&skips, "").with_context(|| format!("cannot write {}", skips.display()))?;
        cargo.env(SKIPPED_TESTS, &skips);
        for result in [toolchain::run(&mut cargo), ensure_no_skips(&skips)] {
            if let Err(error) = result {
                eprintln!("{error:#}");
                failed.push(sanitizer.name());
            }
        }
    }
    failed.dedup();
    ensure!(failed.is_empty(), "failures under the sanitizers: {}", failed.join(", "));
    Ok(())
}

/// Fails with the skipped tests and their reasons. A sanitizer finds nothing in a skipped test, so
/// a run without root or third-party programs would succeed and prove nothing.
fn ensure_no_skips(path: &Path) -> Result<()> {
    let skips =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(skips.is_empty(), "{} tests are skipped:\n{}", skips.lines().count(), skips.trim_end());
    Ok(())
}

/// Splits the arguments into sanitizers and crates. The default is all of each.
fn parse<'a>(root: &Path, arguments: &[&'a str]) -> Result<(Vec<Sanitizer>, Vec<&'a str>)> {
    let (sanitizers, crates) = match arguments {
        ["address", crates @ ..] => (vec![Sanitizer::Address], crates),
        ["thread", crates @ ..] => (vec![Sanitizer::Thread], crates),
        crates => (vec![Sanitizer::Address, Sanitizer::Thread], crates),
    };
    for name in crates {
        if !root.join("crates").join(name).join("Cargo.toml").exists() {
            bail!("{name}: neither a sanitizer (address, thread) nor a crate");
        }
    }
    Ok((sanitizers, if crates.is_empty() { CRATES.to_vec() } else { crates.to_vec() }))
}

/// Returns the command that compiles and runs the tests. Documentation tests are left out, as
/// rustdoc takes its flags from elsewhere.
fn test(root: &Path, sanitizer: Sanitizer, crates: &[&str]) -> Result<Command> {
    let compiler = Compiler::current(root)?;
    let mut cargo = toolchain::cargo(root, &[format!("-Zsanitizer={}", sanitizer.name())]);
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.args(["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"]);
    cargo.arg(format!("--target={}", compiler.host));
    cargo.args(crates.iter().map(|name| format!("--package={name}")));
    match sanitizer {
        Sanitizer::Address => {
            cargo.env("ASAN_OPTIONS", "detect_stack_use_after_return=1");
        }
        Sanitizer::Thread => {
            cargo.arg("-Zbuild-std");
            let mut sysroot = Command::new("rustc");
            sysroot.args(["--print", "sysroot"]).current_dir(root);
            let sysroot = toolchain::output(&mut sysroot)?;
            if !Path::new(sysroot.trim()).join(SYSROOT_SOURCE).join("library").is_dir() {
                use_debian(root, &compiler.host, &mut cargo)
                    .context("no source of std: rustup component add rust-src")?;
            }
        }
    }
    Ok(cargo)
}

/// Makes cargo use a compiler of Debian that has the source of std, with the runtimes of this
/// workspace's compiler.
fn use_debian(root: &Path, host: &str, cargo: &mut Command) -> Result<()> {
    let compiler = debian::unpack(root, "with-source", host, &[SOURCE])?;
    let link = compiler.sysroot.join(SYSROOT_SOURCE);
    fs::create_dir_all(compiler.sysroot.join("lib/rustlib/src"))?;
    replace_link(&only_entry(&compiler.sysroot.join("src"))?, &link)?;
    let own = compiler.sysroot.join("lib/rustlib").join(host).join("lib");
    let libraries = toolchain::libraries(root, host)?;
    for entry in libraries.read_dir().context("cannot list the compiler's libraries")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with("_rt.tsan.a") {
            replace_link(&entry.path(), &own.join(entry.file_name()))?;
        }
    }
    compiler.apply(cargo);
    Ok(())
}

/// The only entry of a directory.
fn only_entry(directory: &Path) -> Result<PathBuf> {
    let context = || format!("cannot list {}", directory.display());
    let mut entries = directory.read_dir().with_context(context)?;
    let first = entries.next().with_context(|| format!("{} is empty", directory.display()))?;
    ensure!(entries.next().is_none(), "{} has several entries", directory.display());
    Ok(first?.path())
}

fn replace_link(target: &Path, link: &Path) -> Result<()> {
    drop(fs::remove_file(link));
    symlink(target, link).with_context(|| format!("cannot make {}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_sanitizers_and_crates() {
        use Sanitizer::{Address, Thread};
        let root = crate::root();
        let parsed = |arguments: &[&'static str]| parse(&root, arguments).unwrap();
        assert_eq!(parsed(&[]), (vec![Address, Thread], CRATES.to_vec()));
        assert_eq!(parsed(&["thread"]), (vec![Thread], CRATES.to_vec()));
        assert_eq!(parsed(&["address", "control"]), (vec![Address], vec!["control"]));
        assert_eq!(parsed(&["control"]), (vec![Address, Thread], vec!["control"]));
    }

    #[test]
    fn other_arguments_are_refused_before_anything_is_compiled() {
        let refused = |arguments: &[&str]| run(&crate::root(), arguments).unwrap_err().to_string();
        assert_eq!(
            refused(&["memory"]),
            "memory: neither a sanitizer (address, thread) nor a crate"
        );
        assert!(refused(&["thread", "address"]).starts_with("address: "));
    }

    #[test]
    fn skipped_tests_are_a_failure() {
        let path = std::env::temp_dir().join(format!("xtask-skips-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        assert!(ensure_no_skips(&path).is_ok());
        fs::write(&path, "a::b: no root\nc: no tshark\n").unwrap();
        let error = ensure_no_skips(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert_eq!(error, "2 tests are skipped:\na::b: no root\nc: no tshark");
        assert!(ensure_no_skips(&path).is_err(), "a missing file proves nothing");
    }

    #[test]
    fn the_default_crates_exist() {
        assert!(parse(&crate::root(), &CRATES).is_ok());
    }
}
