//! Type check of the product for the other processor architecture: on x86-64 for aarch64, on
//! aarch64 for x86-64.
//!
//! The check covers all Rust code of the product and of its dependencies: conditional compilation,
//! types of libc, bindings of C libraries. It compiles no C code and links nothing, so that the C
//! compiler and the libraries of the target are not needed: scripts stand in for the compiler and
//! the archiver. OpenSSL's headers are the host's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::debian;
use crate::toolchain::{self, Compiler};

/// Tools of the target for build scripts: variable of the cc crate, file, text.
const TOOLS: [(&str, &str, &str); 3] = [
    ("CC", "cc", include_str!("cross/cc.sh")),
    ("CXX", "c++", include_str!("cross/cc.sh")),
    ("AR", "ar", include_str!("cross/ar.sh")),
];

/// Checks the product, or with `all` every crate with its tests.
///
/// # Errors
/// The code does not compile for the target, with warnings as errors; or there is no standard
/// library of the target.
pub(crate) fn run(root: &Path, all: bool) -> Result<()> {
    let host = Compiler::current(root)?.host;
    let target = other(&host)?;
    let mut cargo = toolchain::cargo(root, &["-Dwarnings".to_owned()]);
    cargo.args(["check", "--locked", "--quiet", &format!("--target={target}")]);
    if all {
        cargo.args(["--workspace", "--all-targets"]);
    }
    if !toolchain::libraries(root, target)?.is_dir() {
        let libraries = debian::standard_library(target)?;
        debian::unpack(root, target, &host, &[&libraries])
            .with_context(|| format!("no standard library: rustup target add {target}"))?
            .apply(&mut cargo);
    }
    stand_in(&mut cargo, &toolchain::target_directory(root).join("cross"), target)?;
    toolchain::run(&mut cargo)?;
    println!("checked for {target}");
    Ok(())
}

/// The architecture to check on a host.
fn other(host: &str) -> Result<&'static str> {
    match host {
        "x86_64-unknown-linux-gnu" => Ok("aarch64-unknown-linux-gnu"),
        "aarch64-unknown-linux-gnu" => Ok("x86_64-unknown-linux-gnu"),
        _ => bail!("{host}: neither x86-64 nor aarch64 with the GNU C library"),
    }
}

/// Writes [`TOOLS`] and sets the environment in which build scripts use them.
fn stand_in(cargo: &mut Command, directory: &Path, target: &str) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for (variable, name, text) in TOOLS {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        cargo.env(format!("{variable}_{}", target.replace('-', "_")), path);
    }
    // Packages of the host describe libraries of the target: only headers are read.
    cargo.env("PKG_CONFIG_ALLOW_CROSS", "1");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_compiles_for_the_other_architecture() {
        let host = Compiler::current(&crate::root()).unwrap().host;
        let target = other(&host).unwrap();
        if !toolchain::libraries(&crate::root(), target).unwrap().is_dir() {
            return test_support::skip(format!(
                "{target} is not installed (rustup target add); without, cargo xtask cross takes minutes"
            ));
        }
        run(&crate::root(), false).unwrap();
    }

    #[test]
    fn each_architecture_checks_the_other() {
        let target = other("x86_64-unknown-linux-gnu").unwrap();
        assert_eq!(target, "aarch64-unknown-linux-gnu");
        assert_eq!(other(target).unwrap(), "x86_64-unknown-linux-gnu");
        assert!(other("riscv64gc-unknown-linux-gnu").is_err());
    }

    #[test]
    fn tools_make_empty_files_and_pass_questions_on() {
        let directory = std::env::temp_dir().join(format!("xtask-cross-{}", std::process::id()));
        let mut cargo = Command::new("cargo");
        stand_in(&mut cargo, &directory, "aarch64-unknown-linux-gnu").unwrap();
        let tool = |name: &str| cargo.get_envs().find(|(key, _)| *key == name).unwrap().1.unwrap();
        let (object, archive) = (directory.join("a.o"), directory.join("a.a"));
        let mut cc = Command::new(tool("CC_aarch64_unknown_linux_gnu"));
        let compile = cc.args(["-march=armv8-a", "-c", "missing.c", "-o"]).arg(&object);
        toolchain::run(compile).unwrap();
        let mut ar = Command::new(tool("AR_aarch64_unknown_linux_gnu"));
        toolchain::run(ar.arg("cq").arg(&archive).arg(&object)).unwrap();
        assert_eq!(fs::read(&object).unwrap(), fs::read(&archive).unwrap());
        let mut cc = Command::new(tool("CC_aarch64_unknown_linux_gnu"));
        assert!(toolchain::output(cc.arg("--version")).unwrap().lines().count() > 0);
        fs::remove_dir_all(&directory).unwrap();
    }
}
