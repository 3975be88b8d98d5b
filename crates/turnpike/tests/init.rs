//! Tests of `turnpike init` from the command line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpike"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TURNPIKE_")) {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_configuration_is_written_from_flags_and_nothing_is_replaced() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("init");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("turnpike.toml");
    let secret = directory.join("secret");
    let init = |more: &[&str]| run(&[&["init", "--output", path(&file)], more].concat());

    // Standard input is not a terminal here.
    let missing = init(&["--realm", "example.org"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("--auth missing"), "{missing:?}");
    for (wrong, part) in [
        (["--auth", "secret", "--external", "auto"], "STUN"),
        (["--auth", "secret", "--certificate", "acme"], "--name"),
        (["--auth", "both", "--name", "none"], "secret or users"),
    ] {
        let out = init(&[&["--realm", "example.org"], &wrong[..]].concat());
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(stderr(&out).contains(part), "{out:?}");
    }
    assert!(!file.exists() && !secret.exists());

    let flags = ["--realm", "example.org", "--auth", "secret", "--name", "turn.example.org"];
    let out = init(&flags);
    assert!(out.status.success(), "{out:?}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // The umask may remove the group's read access.
    assert_eq!((mode(&file) & !0o040, mode(&secret)), (0o600, 0o600));
    let key = std::fs::read_to_string(&secret).unwrap();
    assert_eq!(key.len(), 45, "32 bytes in base64, and a line end");
    assert!(!format!("{out:?}").contains(key.trim()));
    assert!(stdout(&out).contains(&format!("turnpike check {} --host", path(&file))), "{out:?}");
    // The printed commands work.
    let text = stdout(&out);
    let line = text.lines().find(|line| line.contains("turnpike credentials")).unwrap();
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let minted = run(&words);
    assert!(minted.status.success() && stdout(&minted).contains(":alice"), "{minted:?}");
    let checked = run(&["check", path(&file)]);
    assert!(checked.status.success(), "{checked:?}");

    let before = std::fs::read_to_string(&file).unwrap();
    let again = init(&flags);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("exists") && stderr(&again).contains("--output"), "{again:?}");
    // An application's existing secret is not replaced either.
    std::fs::remove_file(&file).unwrap();
    assert!(stderr(&init(&flags)).contains("secret exists"));
    assert!(!file.exists());
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), key);
    assert!(before.contains("realm = \"example.org\""));
}
