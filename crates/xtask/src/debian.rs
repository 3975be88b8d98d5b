//! A compiler of Debian, for a toolchain that lacks a standard library or its source. The packages
//! are unpacked into a directory of their own: nothing is installed, and the system's package lists
//! stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::toolchain;

/// The compiler that Debian updates for browsers: newer than the `rustc` of a stable release.
const COMPILER: &str = "rustc-web";

/// An unpacked compiler.
pub(crate) struct Unpacked {
    /// The compiler's sysroot.
    pub(crate) sysroot: PathBuf,
    /// Directory of the shared libraries that the compiler itself needs.
    shared_libraries: PathBuf,
}

impl Unpacked {
    /// Makes cargo use the compiler.
    pub(crate) fn apply(&self, cargo: &mut Command) {
        cargo
            .env("RUSTC", self.sysroot.join("bin/rustc"))
            .env("LD_LIBRARY_PATH", &self.shared_libraries);
    }
}

/// Name of the standard library's package for a target.
pub(crate) fn standard_library(target: &str) -> Result<String> {
    Ok(format!("libstd-rust-web-dev:{}", architecture(target)?))
}

/// Name of a triple's architecture in Debian.
fn architecture(triple: &str) -> Result<&'static str> {
    match triple.split_once('-') {
        Some(("x86_64", _)) => Ok("amd64"),
        Some(("aarch64", _)) => Ok("arm64"),
        _ => bail!("no packages for {triple}"),
    }
}

/// Downloads and unpacks a compiler for `host` and further packages. A compiler that an earlier
/// call unpacked under the same name is used again.
///
/// # Errors
/// There is no apt-get, Debian does not have the packages, or the compiler does not run.
pub(crate) fn unpack(root: &Path, name: &str, host: &str, packages: &[&str]) -> Result<Unpacked> {
    let directory = toolchain::target_directory(root).join("debian");
    let tree = directory.join(name);
    if !tree.exists() {
        let download = directory.join("download");
        fetch(&download, architecture(host)?, packages)?;
        let partial = directory.join("partial");
        drop(fs::remove_dir_all(&partial));
        for package in archives(&download)? {
            toolchain::run(Command::new("dpkg").arg("-x").arg(package).arg(&partial))?;
        }
        fs::rename(&partial, &tree).with_context(|| format!("cannot make {}", tree.display()))?;
        drop(fs::remove_dir_all(&download));
    }
    let sysroot = tree.join("usr");
    let shared_libraries = sysroot.join("lib").join(host.replace("-unknown", ""));
    let unpacked = Unpacked { sysroot, shared_libraries };
    let mut rustc = Command::new(unpacked.sysroot.join("bin/rustc"));
    rustc.arg("--version").env("LD_LIBRARY_PATH", &unpacked.shared_libraries);
    println!("compiler of Debian: {}", toolchain::output(&mut rustc)?.trim());
    Ok(unpacked)
}

/// Downloads the compiler with its dependencies that the system lacks, and the further packages.
fn fetch(directory: &Path, own: &str, packages: &[&str]) -> Result<()> {
    let archives = directory.join("cache/archives");
    for part in [directory.join("state/lists/partial"), archives.join("partial")] {
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    let configuration = directory.join("apt.conf");
    fs::write(&configuration, apt_configuration(directory, own))
        .with_context(|| format!("cannot write {}", configuration.display()))?;
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.arg("-qq").args(arguments).env("APT_CONFIG", &configuration);
        // `apt-get download` writes to the current directory.
        toolchain::run(apt.current_dir(&archives))
    };
    apt(&["update"])?;
    apt(&["install", "--download-only", "--yes", "--no-install-recommends", COMPILER])?;
    apt(&[&["download"], packages].concat())
}

/// Configuration of apt-get with package lists and archives below `directory`.
fn apt_configuration(directory: &Path, own: &str) -> String {
    format!(
        "Dir::State \"{0}/state\";\n\
         Dir::State::status \"/var/lib/dpkg/status\";\n\
         Dir::Cache \"{0}/cache\";\n\
         APT::Architecture \"{own}\";\n\
         APT::Architectures {{ \"amd64\"; \"arm64\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         Debug::NoLocking \"true\";\n",
        directory.display()
    )
}

/// Downloaded packages, sorted.
fn archives(download: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in download.join("cache/archives").read_dir().context("cannot list the packages")? {
        found.push(entry?.path());
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "deb"));
    found.sort();
    let is_compiler = |path: &PathBuf| path.to_string_lossy().contains(COMPILER);
    ensure!(
        found.iter().any(is_compiler),
        "this system has {COMPILER} installed, so apt-get did not download the package"
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_by_architecture() {
        let name = |triple| standard_library(triple).map_err(|error| error.to_string());
        assert_eq!(name("aarch64-unknown-linux-gnu"), Ok("libstd-rust-web-dev:arm64".into()));
        assert_eq!(name("x86_64-unknown-linux-gnu"), Ok("libstd-rust-web-dev:amd64".into()));
        let error = name("riscv64gc-unknown-linux-gnu").unwrap_err();
        assert_eq!(error, "no packages for riscv64gc-unknown-linux-gnu");
    }

    #[test]
    fn apt_keeps_its_files_in_the_directory() {
        let text = apt_configuration(Path::new("target/debian/download"), "amd64");
        assert!(text.contains("Dir::State \"target/debian/download/state\";\n"), "{text}");
        assert!(text.contains("Dir::Cache \"target/debian/download/cache\";\n"), "{text}");
        assert!(text.contains("APT::Architecture \"amd64\";\n"), "{text}");
    }
}
