//! One server's turn: start it, run the steps of a plan against it, stop it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::host::Host;
use super::network::Network;
use super::plan::{Answer, Plan};
use super::servers::{Prepared, ServerSpec};
use crate::footprint::{Group, KernelMemory};

/// The longest time of a step, far above any.
const STEP_MAX: Duration = Duration::from_secs(180);
/// Lines of a log in an error.
const LOG_LINES: usize = 12;

/// A child process whose output goes to a log; killed on drop.
pub(super) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a command whose output goes to a log of the run.
    pub(super) fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let errors = file.try_clone().context("a second handle of a log")?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().context("starting a program in a network namespace")?;
        Ok(Self { child, log })
    }

    /// Adds the state and the last output of the process to an error.
    fn explain(&mut self, name: &str, error: anyhow::Error) -> anyhow::Error {
        let state =
            self.ended().map_or_else(|| "running".to_owned(), |status| format!("over: {status}"));
        error.context(format!("{name} was {state}; its last output:\n{}", self.last_output()))
    }

    /// The exit status, once it ended.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of output.
    pub(super) fn last_output(&self) -> String {
        last_lines(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Takes a turn: `plan` gets the server's process, and `report` the progress.
pub(super) fn take(
    network: &Network,
    server: &ServerSpec,
    prepared: &Prepared,
    plan: impl FnOnce(u32, Option<KernelMemory>) -> Plan,
    report: impl FnMut(Answer),
) -> Result<()> {
    let Some((program, arguments)) = prepared.command.split_first() else {
        bail!("{server} has no command");
    };
    let mut command = network.command(Host::Server, program)?;
    command.args(arguments);
    // Variables that override Turnpike's configuration.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TURNPIKE_") {
            command.env_remove(name);
        }
    }
    let mut running = Running::start(command, network.directory().join(format!("{server}.log")))?;
    // `ip netns exec` becomes the program.
    let process = running.child.id();
    // In its group before it is the server: `ip netns exec` sets the namespace up first.
    let group = Group::with(process);
    let plan = plan(process, group.as_ref().map(Group::kernel_memory));
    let done = steps(network, &plan, report);
    let done = done.map_err(|error| running.explain(&server.name, error));
    // Ended before its group is removed.
    drop(running);
    drop(group);
    done
}

/// Runs the steps on the clients' host.
fn steps(network: &Network, plan: &Plan, mut report: impl FnMut(Answer)) -> Result<()> {
    let own = std::env::current_exe().context("finding this program")?;
    let log = network.directory().join("steps.log");
    let errors = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let mut command = network.command(Host::Client, own)?;
    command.arg("steps").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().context("starting the clients")?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    // Killed when this function returns.
    let mut running = Running { child, log };
    let text = serde_json::to_vec(plan).context("a plan as JSON")?;
    // Its pipe is closed with it, which ends the plan for the reader.
    input.context("the clients' input")?.write_all(&text).context("sending the plan")?;
    let lines = lines_of(output.context("the clients' output")?);
    loop {
        match lines.recv_timeout(STEP_MAX) {
            Ok(line) => report(
                serde_json::from_str(&line).with_context(|| format!("from the clients: {line}"))?,
            ),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let error = anyhow!("a step took longer than {STEP_MAX:?}");
                return Err(running.explain("the clients' process", error));
            }
        }
    }
    let status = running.child.wait().context("waiting for the clients")?;
    if !status.success() {
        bail!("{}", running.last_output());
    }
    Ok(())
}

/// Lines in a channel, so that waiting for one can time out.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = sync_channel(1);
    thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.into_iter().try_for_each(|line| send.send(line))
    });
    lines
}
