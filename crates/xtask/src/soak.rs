//! A server under churn for a given time: the test of turn-bench, which runs a few rounds
//! otherwise.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Has clients come and go for `minutes`.
///
/// # Errors
/// No number, or the test fails: something of the clients is left.
pub(crate) fn run(root: &Path, minutes: &str) -> Result<()> {
    let positive = minutes.parse::<f64>().is_ok_and(|minutes| minutes > 0.0);
    ensure!(positive, "--minutes {minutes}: not a positive number");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for arguments in [
        &["build", "--locked", "--package=turnpike"][..],
        &[
            "test",
            "--locked",
            "--package=turn-bench",
            "--test=tests",
            "--",
            "soak::",
            "--nocapture",
        ],
    ] {
        let status = Command::new(&cargo)
            .args(arguments)
            .env("SOAK_MINUTES", minutes)
            .current_dir(root)
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    }
    Ok(())
}
