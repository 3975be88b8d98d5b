//! The compiler of this workspace: its programs, its host, its libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`, which takes precedence over every other setting of
/// flags.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// Returns cargo, to be run at the root of the workspace. The flags apply to the code of the target
/// of `--target`, not to build scripts and procedural macros.
pub(crate) fn cargo(root: &Path, flags: &[String]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join(FLAG_SEPARATOR)).current_dir(root);
    cargo
}

/// Directory of cargo's output.
pub(crate) fn target_directory(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Release, commit and host of a compiler.
#[derive(Debug, PartialEq)]
pub(crate) struct Compiler {
    /// Target triple of the compiler itself.
    pub(crate) host: String,
    /// Release and commit, for names of directories.
    pub(crate) version: String,
}

impl Compiler {
    /// Returns the compiler of this workspace.
    ///
    /// # Errors
    /// The compiler does not run.
    pub(crate) fn current(root: &Path) -> Result<Self> {
        Self::parse(&output(Command::new("rustc").arg("-vV").current_dir(root))?)
    }

    /// Parses the output of `rustc -vV`.
    fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.with_context(|| format!("rustc -vV reports no {name}"))
        };
        let version = format!("{}-{}", field("release")?, field("commit-hash")?);
        Ok(Self { host: field("host")?.to_owned(), version })
    }
}

/// Returns the directory of the compiler's libraries for a target. The directory is missing if the
/// target is not installed.
///
/// # Errors
/// The compiler does not run or does not know the target.
pub(crate) fn libraries(root: &Path, triple: &str) -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(root);
    Ok(PathBuf::from(output(&mut rustc)?.trim()))
}

/// Runs a command.
///
/// # Errors
/// The command does not run or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// The command does not run, fails, or prints something other than text.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_version_are_found() {
        let text = "rustc 1.95.0 (abc 2026-04-14)\nbinary: rustc\ncommit-hash: abc\n\
                    host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";
        let expected =
            Compiler { host: "x86_64-unknown-linux-gnu".into(), version: "1.95.0-abc".into() };
        assert_eq!(Compiler::parse(text).unwrap(), expected);
        let error = Compiler::parse("release: 1.95.0\ncommit-hash: abc\n").unwrap_err();
        assert_eq!(error.to_string(), "rustc -vV reports no host");
    }

    #[test]
    fn the_compiler_has_libraries_for_its_host() {
        let root = crate::root();
        let compiler = Compiler::current(&root).unwrap();
        assert!(libraries(&root, &compiler.host).unwrap().is_dir());
    }

    #[test]
    fn failures_name_the_program() {
        assert_eq!(output(Command::new("echo").arg("text")).unwrap(), "text\n");
        assert!(output(&mut Command::new("false")).unwrap_err().to_string().starts_with("false "));
        assert!(run(&mut Command::new("false")).unwrap_err().to_string().starts_with("false "));
    }
}
