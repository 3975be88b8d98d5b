//! Other people's clients: where they are, or why not.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Config, ECHO_PORT, Host, Lab, repository};

/// pion's client, built with the Go toolchain and modules at hand: see `clients/pion/main.go`.
///
/// # Errors
/// A reason to skip the test.
pub fn pion() -> Result<PathBuf, String> {
    let source = repository().join("crates/e2e/clients/pion");
    let binary = source.join("bin/pion");
    // The first of the tests builds it, and the others wait.
    let lock = File::create(repository().join("crates/e2e/clients/pion/.lock"));
    let lock = lock.and_then(|file| file.lock().map(|()| file));
    let _lock = lock.map_err(|error| format!("cannot lock pion's client: {error}"))?;
    let out = Command::new("go")
        .arg("build")
        .arg("-o")
        .arg(&binary)
        .arg(".")
        .current_dir(&source)
        .output();
    match out {
        Ok(out) if out.status.success() => Ok(binary),
        Ok(out) => Err(format!(
            "pion's client does not build: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
        Err(error) => Err(format!("Go is not installed: {error}")),
    }
}

/// A run of pion's client (`clients/pion/main.go`) with the first account, from the client's host
/// to the echo peer. It looks its server up in IPv4 only.
#[must_use]
pub fn pion_run(
    lab: &Lab,
    client: &Path,
    config: &Config,
    (count, transport): (u32, &str),
) -> Command {
    pion_run_to(lab, client, config, (SocketAddr::new(lab.v4.peer, ECHO_PORT), count, transport))
}

/// The same to another peer that echoes.
#[must_use]
pub fn pion_run_to(
    lab: &Lab,
    client: &Path,
    config: &Config,
    (peer, count, transport): (SocketAddr, u32, &str),
) -> Command {
    let account = config.accounts[0];
    let mut command = lab.command(Host::Client, client);
    command.args([
        &format!("{}:3478", lab.v4.listen),
        account.name,
        account.password,
        "turn.test",
        &peer.to_string(),
        &count.to_string(),
        transport,
    ]);
    command
}

/// Kubernetes' package manager, where it is installed or was built by `cargo xtask chart`: that
/// takes minutes.
///
/// # Errors
/// A reason to skip the test.
pub fn helm() -> Result<PathBuf, String> {
    let built = crate::binary().ancestors().nth(2).map(|target| target.join("tools/helm"));
    let found = [PathBuf::from("helm")].into_iter().chain(built);
    let mut found = found.filter(|helm| Command::new(helm).arg("version").output().is_ok());
    found.next().ok_or_else(|| {
        "helm is not installed; `cargo xtask chart` builds it, and runs these tests".to_owned()
    })
}

/// The script that connects two of aioice's agents, for `/usr/bin/python3`: see
/// `clients/aioice/relay_only.py`.
///
/// # Errors
/// A reason to skip the test.
pub fn aioice() -> Result<PathBuf, String> {
    let found = Command::new("/usr/bin/python3").args(["-c", "import aioice"]).output();
    match found {
        Ok(output) if output.status.success() => {
            Ok(repository().join("crates/e2e/clients/aioice/relay_only.py"))
        }
        Ok(_) | Err(_) => Err("aioice is not installed (Debian package python3-aioice)".to_owned()),
    }
}

/// Checks that coturn's client utilities are installed.
///
/// # Errors
/// A reason to skip the test.
pub fn coturn() -> Result<(), String> {
    let found = Command::new("turnutils_uclient").arg("-h").output().is_ok();
    found.then_some(()).ok_or_else(|| {
        "coturn's client utilities are not installed (Debian package coturn)".to_owned()
    })
}

/// Checks that Prometheus and its tool are installed.
///
/// # Errors
/// A reason to skip the test.
pub fn prometheus() -> Result<(), String> {
    let there = |name| Command::new(name).arg("--version").output().is_ok();
    let found = there("prometheus") && there("promtool");
    found
        .then_some(())
        .ok_or_else(|| "Prometheus is not installed (Debian package prometheus)".to_owned())
}

/// Checks that pebble, a certificate authority for tests, is installed with its name server.
///
/// # Errors
/// A reason to skip the test.
pub fn pebble() -> Result<(), String> {
    let there = |name| Command::new(name).arg("-h").output().is_ok();
    (there("pebble") && there("pebble-challtestsrv"))
        .then_some(())
        .ok_or_else(|| "pebble is not installed (Debian package pebble)".to_owned())
}

/// A browser.
///
/// # Errors
/// A reason to skip the test.
pub fn chromium() -> Result<&'static str, String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let missing = || "Chromium is not installed (Debian package chromium)".to_owned();
    names.into_iter().find(there).ok_or_else(missing)
}
