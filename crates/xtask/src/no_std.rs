//! Proof that the crates with `#![no_std]` build without std, and so do their dependencies: a check
//! with a sysroot that has only core and alloc. Build scripts and procedural macros run on the host
//! and have std.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::toolchain::{self, Compiler};

/// Libraries of the sysroot. The other two need compiler_builtins.
const LIBRARIES: [&str; 3] = ["core", "alloc", "compiler_builtins"];

/// Checks each crate that claims `no_std`.
///
/// # Errors
/// No crate claims it, or a crate or one of its dependencies needs std.
pub(crate) fn run(root: &Path) -> Result<()> {
    let crates = claimants(root)?;
    ensure!(!crates.is_empty(), "no crate in crates/ has #![no_std]");
    let compiler = Compiler::current(root)?;
    let sysroot = make_sysroot(root, &compiler)?;
    let mut cargo = toolchain::cargo(root, &[format!("--sysroot={}", sysroot.display())]);
    cargo.args(["check", "--locked", "--quiet", &format!("--target={}", compiler.host)]);
    cargo.args(crates.iter().map(|name| format!("--package={name}")));
    // Cargo locks a build directory: this check would wait minutes for the lints.
    cargo.arg(format!("--target-dir={}", sysroot.with_file_name("build").display()));
    let names = crates.join(", ");
    toolchain::run(&mut cargo)
        .with_context(|| format!("{names}: not every crate builds without std"))?;
    println!("without std: {names}");
    Ok(())
}

/// Directories of the crates that claim `no_std`, sorted. A directory has the name of its package.
fn claimants(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in root.join("crates").read_dir().context("cannot list the crates")? {
        let entry = entry?;
        let Ok(text) = fs::read_to_string(entry.path().join("src/lib.rs")) else { continue };
        if claims_no_std(&text) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Returns true if the source has the attribute, alone or under a condition.
fn claims_no_std(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("#![") && line.contains("no_std"))
}

/// Makes a sysroot with links to [`LIBRARIES`] of the compiler's sysroot; returns the path. The
/// path contains the compiler's version, so that cargo notices another compiler.
fn make_sysroot(root: &Path, compiler: &Compiler) -> Result<PathBuf> {
    let libraries = toolchain::libraries(root, &compiler.host)?;
    let sysroot = toolchain::target_directory(root).join("no-std").join(&compiler.version);
    let own = sysroot.join("lib/rustlib").join(&compiler.host).join("lib");
    fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    let mut found = 0;
    for entry in
        libraries.read_dir().with_context(|| format!("cannot list {}", libraries.display()))?
    {
        let entry = entry?;
        if !is_permitted(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let link = own.join(entry.file_name());
        match symlink(entry.path(), &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {}", link.display()));
            }
            _ => found += 1,
        }
    }
    ensure!(found >= LIBRARIES.len(), "{} lacks {LIBRARIES:?}", libraries.display());
    Ok(sysroot)
}

/// Returns true if a file of the compiler's libraries belongs to one of [`LIBRARIES`].
fn is_permitted(file: &str) -> bool {
    let name = file.strip_prefix("lib").and_then(|name| name.split_once('-'));
    name.is_some_and(|(name, _)| LIBRARIES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_that_claim_it_build_without_std() {
        run(&crate::root()).unwrap();
    }

    #[test]
    fn the_core_claims_no_std() {
        let names = claimants(&crate::root()).unwrap();
        let core =
            ["fair-share", "state-format", "stun-wire", "turn-client", "turn-proto", "turn-types"];
        assert_eq!(names, core, "a crate without std is added here, and none is lost unnoticed");
    }

    #[test]
    fn claims_are_attributes() {
        assert!(claims_no_std("//! Text.\n#![no_std]\n"));
        assert!(claims_no_std("#![cfg_attr(not(test), no_std)]\n"));
        assert!(!claims_no_std("//! This crate is not no_std.\n// #![no_std]\n"));
    }

    #[test]
    fn std_is_left_out_of_the_sysroot() {
        assert!(is_permitted("libcore-cbae4e86ec454.rlib"));
        assert!(is_permitted("libcompiler_builtins-5dcc73.rmeta"));
        assert!(!is_permitted("libstd-cbae4e86ec454.rlib"));
        assert!(!is_permitted("libstd_detect-cbae4e86ec454.rlib"));
        assert!(!is_permitted("librustc_std_workspace_core-75c13075.rlib"));
    }
}
