//! `scripts/install-packages` on a machine without Rust, and `scripts/build-package` on one without
//! the tools of another architecture.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{Tool, repository};

/// Commands that the script uses, and that the machine has.
const COMMANDS: [&str; 12] = [
    "bash",
    "sed",
    "dirname",
    "dpkg",
    "id",
    "cc",
    "pkg-config",
    "mktemp",
    "tail",
    "rm",
    "tee",
    "chmod",
];

/// A directory of commands, without cargo, in which apt knows one version of it.
struct Commands(PathBuf);

impl Commands {
    fn new(cargo: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tp{}-commands-{cargo}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory");
        for command in COMMANDS {
            let found = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(command));
            let found = found.into_iter().find(|path| path.exists());
            symlink(found.unwrap_or_else(|| panic!("{command} is missing")), path.join(command))
                .expect("a link");
        }
        let commands = Self(path);
        commands.write("apt-cache", &format!("echo 'cargo:'; echo '  Candidate: {cargo}'"));
        // Installs nothing: it shows its arguments.
        commands.write("apt-get", "echo \"apt-get $*\" >&2; exit 1");
        commands.write("sudo", "exec \"$@\"");
        commands
    }

    fn write(&self, name: &str, line: &str) {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/bash\n{line}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn install(&self) -> Tool {
        self.run("install-packages", &["build"])
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Tool {
        let mut script = Command::new(self.0.join("bash"));
        script.arg(repository().join("scripts").join(name)).args(arguments);
        Tool::run(script.env("PATH", &self.0), Duration::from_secs(60))
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn rust_is_the_distributions_where_that_is_new_enough() {
    let out = Commands::new("1.96.0+dfsg1-1").install();
    assert!(out.output.contains("installing cargo"), "{}", out.output);
}

#[test]
fn where_it_is_too_old_one_line_says_what_to_do() {
    let out = Commands::new("0.66.0+ds1-1").install();
    assert!(!out.ok);
    assert!(out.output.contains("this distribution has 0.66.0"), "{}", out.output);
    assert_eq!(out.output.matches("sh.rustup.rs").count(), 1, "{}", out.output);
    assert!(!out.output.contains("apt-get"), "nothing is installed: {}", out.output);
}

#[test]
fn a_build_for_another_architecture_says_what_is_missing() {
    let commands = Commands::new("none");
    commands.write("rustc", "[ \"$1\" = -vV ] && echo 'host: none' || echo /nonexistent");
    let out = commands.run("build-package", &["deb", "--target", "aarch64-unknown-linux-gnu"]);
    assert!(!out.ok);
    let lines: Vec<&str> = out.output.lines().collect();
    assert_eq!(lines.len(), 3, "{}", out.output);
    assert!(lines[1].contains("gcc-aarch64-linux-gnu"), "{}", out.output);
    assert!(lines[1].contains("qemu-user (scripts/install-packages cross"), "{}", out.output);
    assert!(lines[2].ends_with("rustup target add aarch64-unknown-linux-gnu"), "{}", out.output);
    let out = commands.run("build-package", &["deb", "--target", "riscv64gc-unknown-linux-gnu"]);
    assert!(!out.ok && out.output.contains("only for aarch64"), "{}", out.output);
    let out = commands.run("install-packages", &["--missing", "cross"]);
    assert!(out.ok && out.output.contains("gcc-aarch64-linux-gnu"), "{}", out.output);
}

#[test]
fn the_scripts_are_valid_bash() {
    let scripts = fs::read_dir(repository().join("scripts")).expect("a list");
    let mut count = 0;
    for script in scripts.flatten().filter(|script| script.path().is_file()) {
        let checked =
            Tool::run(Command::new("bash").arg("-n").arg(script.path()), Duration::from_secs(60));
        assert!(checked.ok, "{}", checked.output);
        count += 1;
    }
    assert!(count > 5, "{count} scripts");
}
