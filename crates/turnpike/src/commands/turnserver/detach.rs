//! Option `-o`: runs the server in the background, in a separate session.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::anyhow;

use crate::failure::{Failure, OrFail as _, Result};
use crate::process::READY;

/// First argument of the background process.
pub(super) const DETACHED: &str = "--turnpike-detached";

/// Starts the server in another process, and waits until it serves. Until then the process prints
/// errors to this terminal.
///
/// # Errors
/// The server does not start.
pub(super) fn start(words: &[String]) -> Result<()> {
    const CANNOT: &str = "cannot start the server in the background";
    let program = std::env::current_exe().or_fail(CANNOT)?;
    let mut child = Command::new(program)
        .arg0("turnserver")
        .arg(DETACHED)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .or_fail(CANNOT)?;
    let mut printed = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut printed).or_fail(CANNOT)?;
    }
    if printed.lines().any(|line| line == READY) {
        return Ok(());
    }
    let status = child.wait().or_fail(CANNOT)?;
    Err(Failure::failed(anyhow!("the server did not start ({status})")))
}

/// Starts a new session without the terminal.
///
/// # Errors
/// The system refuses.
pub(super) fn leave_session() -> Result<()> {
    rustix::process::setsid().map(drop).or_fail("cannot begin a session")
}
