//! One server's turn: start it, run the steps of a plan against it, stop it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::host::Host;
use super::network::Network;
use super::plan::{Answer, Plan, Step};
use super::servers::{Prepared, ServerSpec};
use crate::outcome::Outcome;

/// The longest that a step may take: far longer than any does.
const STEP_MAX: Duration = Duration::from_secs(180);
/// Lines of a log that are shown when something went wrong.
const LOG_LINES: usize = 12;

/// A program of ours or a server, stopped when it is dropped.
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

    /// Its process: `ip netns exec` becomes the program.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error that names how it ended, if it did, and shows what it said last.
    pub(super) fn explain(&mut self, name: &str, error: anyhow::Error) -> anyhow::Error {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!("{name} ended: {status}"),
            Ok(None) | Err(_) => format!("{name} was running"),
        };
        let said = last_lines(&self.log);
        let said = if said.is_empty() { "nothing".to_owned() } else { format!("\n{said}") };
        error.context(format!("{ended}; it said {said}"))
    }
}

impl Running {
    /// How it ended, when it has.
    pub(super) fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What it said last.
    pub(super) fn said(&self) -> String {
        last_lines(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
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

/// What a turn says while it goes on.
pub(super) enum News {
    /// A step begins.
    Begun(Step),
    /// It is done.
    Done(Step, Box<Outcome>),
    /// It could not be done.
    Failed(Step, String),
}

/// Takes a turn: `plan` is what is to be done when the server's process is known.
pub(super) fn take(
    network: &Network,
    server: &ServerSpec,
    prepared: &Prepared,
    plan: impl FnOnce(u32) -> Plan,
    mut tell: impl FnMut(News),
) -> Result<()> {
    let Some((program, arguments)) = prepared.command.split_first() else {
        bail!("{server} has no command");
    };
    let directory = network.directory();
    let mut command = network.command(Host::Server, program)?;
    command.args(arguments);
    forget_settings(&mut command);
    let mut running = Running::start(command, directory.join(format!("{server}.log")))?;
    let plan = plan(running.id());
    steps(network, &plan, &mut tell).map_err(|error| running.explain(&server.name, error))
}

/// Variables that would change what Turnpike's configuration says.
fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TURNPIKE_") {
            command.env_remove(name);
        }
    }
}

/// Runs the steps in the clients' host.
fn steps(network: &Network, plan: &Plan, tell: &mut impl FnMut(News)) -> Result<()> {
    let own = std::env::current_exe().context("finding this program")?;
    let log = network.directory().join("steps.log");
    let errors = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let mut command = network.command(Host::Client, own)?;
    command.arg("steps").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().context("starting the clients")?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    // Ended in any case when this function returns.
    let mut running = Running { child, log };
    send_plan(input, plan)?;
    let lines = lines_of(output.context("the clients' output")?);
    let mut current: Option<Step> = None;
    loop {
        let answer = match lines.recv_timeout(STEP_MAX) {
            Ok(line) => serde_json::from_str(&line)
                .with_context(|| format!("what the clients said: {line}"))?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let error = anyhow!("a step took longer than {STEP_MAX:?}");
                return Err(running.explain("the clients' process", error));
            }
        };
        match (answer, current) {
            (Answer::Begun(step), _) => {
                current = Some(step);
                tell(News::Begun(step));
            }
            (Answer::Done(Some(outcome)), Some(step)) => tell(News::Done(step, outcome)),
            (Answer::Failed(why), Some(step)) => tell(News::Failed(step, why)),
            (Answer::Done(None), _) => {}
            (Answer::Done(Some(_)) | Answer::Failed(_), None) => {
                bail!("the clients answered before they began")
            }
        }
    }
    let status = running.child.wait().context("waiting for the clients")?;
    if !status.success() {
        bail!("{}", last_lines(&running.log));
    }
    Ok(())
}

fn send_plan(input: Option<ChildStdin>, plan: &Plan) -> Result<()> {
    let text = serde_json::to_vec(plan).context("a plan as JSON")?;
    // Its end is closed with it, which is how the reader knows that this is all.
    input.context("the clients' input")?.write_all(&text).context("telling the clients the plan")
}

/// Lines as they come, so that waiting for one has an end.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    // One at a time: there is nothing to be gained by reading ahead.
    let (send, lines) = sync_channel(1);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
