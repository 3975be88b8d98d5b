//! `turnpike upgrade`: replaces the running server by a successor process.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use rustix::net::sockopt::socket_peercred;

use crate::cli::{self, PathOptions};
use crate::failure::{Failure, OrFail as _, Result};
use crate::process::READY;
use crate::start_facts::StartFacts;
use crate::upgrade_command::{self, TAKES_OVER_VARIABLE};
use crate::{handover, output, paths};

/// Environment variable with the process id for the service manager's watchdog. The predecessor's
/// value must not be inherited.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

const AS_ITS_USER: &str = "run it as the user that the server runs as; a service of systemd is upgraded by \
                           `systemctl reload`";

/// Maximum time until the successor serves. Longer than the running server waits for the successor.
const READY_WITHIN: Duration = Duration::from_mins(4);

pub(crate) fn run(paths: &PathOptions, args: &cli::Upgrade) -> Result<()> {
    let before = running(paths)?;
    let program = match &args.binary {
        Some(path) => std::path::absolute(path).or_fail("cannot find the program")?,
        None => std::env::current_exe().or_fail("cannot find this program")?,
    };
    replace((before, &start_of(before, paths)?), &program, paths)
}

/// Upgrades a server if the file of its program was replaced.
pub(crate) fn run_if_replaced(paths: &PathOptions) -> Result<()> {
    let before = running(paths)?;
    let start = start_of(before, paths)?;
    // The kernel marks the path of a deleted file.
    let program = start.program.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    let Some(program) = program.map(|program| PathBuf::from(OsStr::from_bytes(program))) else {
        return Ok(());
    };
    replace((before, &start), &program, paths)
}

/// Returns how the running server was started. A server with protected memory is queried, because
/// the kernel does not show the facts then.
fn start_of(before: i32, paths: &PathOptions) -> Result<StartFacts> {
    let socket = handover::socket(&paths::control_socket(paths).path);
    StartFacts::of_process(before)
        .or_else(|_| handover::ask_for_start(&socket))
        .or_fail("cannot see how the server was started")
}

fn replace((before, start): (i32, &StartFacts), program: &Path, paths: &PathOptions) -> Result<()> {
    let mut command = command(program, start, paths)?;
    let mut child = command
        .spawn()
        .map_err(|error| Failure::failed(anyhow!("cannot start {}: {error}", program.display())))?;
    let has_taken_over = |child: u32| running(paths).is_ok_and(|now| now.cast_unsigned() == child);
    match wait_until_ready(&mut child, READY_WITHIN, has_taken_over)
        .or_fail("cannot wait for the new process")?
    {
        None => {
            output::print(&format!("process {} serves in place of process {before}", child.id()))
        }
        Some(why) => Err(Failure::failed(anyhow!("the new process has not taken over ({why})"))
            .hint(match running(paths) {
                Ok(_) => "the running server goes on as before",
                Err(_) => "the server has ended meanwhile: its log says why",
            })),
    }
}

/// Waits for the ready line of a process. Returns the reason if the process has exited or was
/// killed after a timeout.
fn wait_until_ready(
    child: &mut Child,
    patience: Duration,
    has_taken_over: impl Fn(u32) -> bool,
) -> io::Result<Option<String>> {
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
    let (tell, told) = channel();
    let read = move || {
        let mut lines = BufReader::new(out).split(b'\n').map_while(io::Result::ok);
        // Other lines may precede the ready line.
        let _ = tell.send(lines.any(|line| line.trim_ascii_end() == READY.as_bytes()));
    };
    thread::Builder::new().name("ready".to_owned()).spawn(read)?;
    match told.recv_timeout(patience) {
        Ok(true) => Ok(None),
        // The ready line is late, or this command was stopped (SIGSTOP).
        Err(RecvTimeoutError::Timeout) if has_taken_over(child.id()) => Ok(None),
        Err(RecvTimeoutError::Timeout) => {
            child.kill()?;
            child.wait()?;
            Ok(Some("it was not ready in time, and was killed".to_owned()))
        }
        Ok(false) | Err(RecvTimeoutError::Disconnected) => Ok(Some(child.wait()?.to_string())),
    }
}

/// Returns the process id of the running server.
fn running(paths: &PathOptions) -> Result<i32> {
    let socket = handover::socket(&paths::control_socket(paths).path);
    let stream = UnixStream::connect(&socket).map_err(|error| {
        let what = anyhow!("no running server takes upgrades at {}: {error}", socket.display());
        Failure::failed(what).hint(if error.kind() == io::ErrorKind::PermissionDenied {
            AS_ITS_USER
        } else {
            "name its directory with --data, or its socket with --socket"
        })
    })?;
    let server = socket_peercred(&stream).or_fail("cannot see whose server it is")?;
    if server.uid != rustix::process::geteuid() {
        let what =
            anyhow!("the server is of user {}, and this command is not", server.uid.as_raw());
        return Err(Failure::failed(what).hint(AS_ITS_USER));
    }
    if server.pid.is_init() {
        let what = anyhow!("the server is the first process of its container, which ends with it");
        return Err(Failure::failed(what).hint("start another container, and drain this one"));
    }
    Ok(server.pid.as_raw_nonzero().get())
}

/// Returns the command that starts the successor. The successor has the running server's arguments,
/// or the configuration named on this command line.
fn command(program: &Path, start: &StartFacts, paths: &PathOptions) -> Result<Command> {
    let mut words = parts(&start.arguments);
    let name = words.next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "turnserver") {
        let what = anyhow!("a server that was started as turnserver takes no upgrades");
        return Err(Failure::usage(what).hint("start it as `turnpike run --coturn-config FILE`"));
    }
    let mut command = Command::new(program);
    match &paths.config {
        Some(config) => {
            let data = paths.data.iter().flat_map(|data| ["--data".into(), data.into()]);
            let socket = paths.socket.iter().flat_map(|socket| ["--socket".into(), socket.into()]);
            let own: Vec<OsString> = data.chain(socket).collect();
            let config = std::path::absolute(config).or_fail("cannot find the configuration")?;
            command.arg("run").arg("--config").arg(config).args(own);
        }
        None => {
            command.args(words).current_dir(&start.directory);
        }
    }
    command
        .env_clear()
        .envs(parts(&start.environment).filter_map(|variable| pair(&variable)))
        .env_remove(WATCHDOG_PID)
        .env(TAKES_OVER_VARIABLE, upgrade_command::own_name())
        // The terminal's signals are intended for this command, not for the server.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Splits text into parts that are each followed by a zero byte.
fn parts(bytes: &[u8]) -> impl Iterator<Item = OsString> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let parts = bytes.split(|byte| *byte == 0);
    parts.map(|part| OsString::from_vec(part.to_vec()))
}

fn pair(variable: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let of = |part: &[u8]| OsString::from_vec(part.to_vec());
    Some((of(&bytes[..at]), of(&bytes[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(script: &str, patience: Duration, has_taken_over: bool) -> Option<String> {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let why = wait_until_ready(&mut child, patience, |_| has_taken_over).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        why
    }

    #[test]
    fn the_wait_for_a_process_that_does_not_get_ready_ends() {
        let (soon, ever) = (Duration::from_millis(50), Duration::from_mins(1));
        assert_eq!(said(&format!("echo first; echo {READY}"), ever, false), None);
        assert_eq!(said("echo first; exit 3", ever, false).as_deref(), Some("exit status: 3"));
        let stopped = said("kill -STOP $$", soon, false);
        assert_eq!(stopped.as_deref(), Some("it was not ready in time, and was killed"));
        // The process serves, but its ready line has not arrived.
        assert_eq!(said("exec sleep 60", soon, true), None);
    }

    #[test]
    fn words_and_variables_are_read_as_the_kernel_writes_them() {
        let words: Vec<_> = parts(b"turnpike\0--data\0/a b\0\0").collect();
        assert_eq!(words, ["turnpike", "--data", "/a b", ""]);
        let found = pair(OsStr::new("A=b=c")).unwrap();
        assert_eq!(found, ("A".into(), "b=c".into()));
        assert_eq!(pair(OsStr::new("none")), None);
    }
}
