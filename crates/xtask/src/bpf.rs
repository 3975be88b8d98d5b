//! BPF programs: their objects are committed, so that building needs no clang.
//!
//! An object is a function of its source and of the compiler: no path and no time is in it. Another
//! release of the compiler may make other bytes of the same source.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use anyhow::{Context, Result, bail, ensure};

const CLANG: &str = "clang-19";
const STRIP: &str = "llvm-strip-19";

/// Headers of programs, from Debian's package libbpf-dev.
const HEADERS: &str = "/usr/include/bpf/bpf_helpers.h";

const INSTALL: &str = "install Debian's packages with scripts/install-packages test, or: apt-get install --no-install-recommends clang-19 llvm-19 libbpf-dev";

/// Compiles every program and writes the objects that differ.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (name, path, bytes) in compile_all(root)? {
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            println!("{name}: as it should be");
            continue;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {name}"))?;
        println!("{name}: written");
    }
    Ok(())
}

/// Fails if an object differs from the compiled source.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut stale = Vec::new();
    for (name, path, bytes) in compile_all(root)? {
        if fs::read(path).ok() != Some(bytes) {
            stale.push(name);
        }
    }
    ensure!(
        stale.is_empty(),
        "not what their sources compile to with {}: {}; run cargo xtask bpf and commit them",
        version(),
        stale.join(", ")
    );
    Ok(())
}

/// Each object: its name for people, its path, its bytes.
fn compile_all(root: &Path) -> Result<Vec<(String, PathBuf, Vec<u8>)>> {
    ensure!(Path::new(HEADERS).exists(), "{HEADERS} is missing: {INSTALL}");
    let mut objects = Vec::new();
    for source in sources(root)? {
        let object = source.with_extension("o");
        let name = object.strip_prefix(root).unwrap_or(&object).display().to_string();
        objects.push((name, object, compile(&source)?));
    }
    ensure!(!objects.is_empty(), "there is no program in crates/*/bpf");
    Ok(objects)
}

/// `crates/*/bpf/*.bpf.c`, in order.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for member in root.join("crates").read_dir().context("cannot list the crates")? {
        let directory = member?.path().join("bpf");
        if directory.is_dir() {
            for entry in directory.read_dir().context("cannot list BPF programs")? {
                found.push(entry?.path());
            }
        }
    }
    found.retain(|path| path.to_string_lossy().ends_with(".bpf.c"));
    found.sort();
    Ok(found)
}

fn compile(source: &Path) -> Result<Vec<u8>> {
    let (Some(directory), Some(name)) = (source.parent(), source.file_name()) else {
        bail!("{}: not a file", source.display());
    };
    let scratch = env::temp_dir().join(format!("xtask-bpf-{}.o", process::id()));
    let bytes = compile_to(&scratch, directory, name);
    drop(fs::remove_file(&scratch));
    bytes.with_context(|| format!("cannot compile {}", source.display()))
}

fn compile_to(scratch: &Path, directory: &Path, name: &OsStr) -> Result<Vec<u8>> {
    let mut clang = Command::new(CLANG);
    clang
        // For any machine of this byte order; jumps and 32-bit registers as Linux 5.1 has them.
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-c"])
        // The loader finds maps by their types, which are made from debug information.
        .args(["-g", "-fdebug-compilation-dir=."])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
        // Debian's directory of asm/types.h.
        .arg(format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH))
        .arg(name)
        // Through a pipe: the random name of a temporary file reaches the order of the type
        // information.
        .args(["-o", "-"])
        .current_dir(directory);
    let object = run(&mut clang)?.stdout;
    fs::write(scratch, object).with_context(|| format!("cannot write {}", scratch.display()))?;
    // The rest of the debug information depends on the machine more than on the program.
    run(Command::new(STRIP).arg("-g").arg(scratch))?;
    fs::read(scratch).context("the compiler left no object")
}

fn run(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}: {INSTALL}"))?;
    ensure!(output.status.success(), "{program}:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

fn version() -> String {
    let output = Command::new(CLANG).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or(CLANG).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_are_what_their_sources_compile_to() {
        let has = |program| Command::new(program).arg("--version").output().is_ok();
        if !has(CLANG) || !has(STRIP) || !Path::new(HEADERS).exists() {
            return test_support::skip(INSTALL);
        }
        check(&crate::root()).unwrap();
    }

    #[test]
    fn every_program_has_its_object() {
        let sources = sources(&crate::root()).unwrap();
        assert!(!sources.is_empty());
        for source in sources {
            assert!(source.with_extension("o").exists(), "{}: cargo xtask bpf", source.display());
        }
    }
}
