//! Detection of an exited `turnpike upgrade` command in the process that the command started. An
//! upgrade must not take place after its command has exited.
//!
//! The command identifies its process by id and start time, because the id may be reused. The
//! descriptor of the process is opened before files are confined.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

/// Environment variable of the process that `turnpike upgrade` starts: `PID`, or `PID:START`.
pub(crate) const TAKES_OVER_VARIABLE: &str = "TURNPIKE_TAKES_OVER";

/// Position of the start time in `/proc/PID/stat`, counted after the program's name (proc(5)).
const START_TIME_AT: usize = 19;

static COMMAND: OnceLock<UpgradeCommand> = OnceLock::new();

/// Process of the command.
#[derive(Debug)]
enum UpgradeCommand {
    /// No process was named: the server was started otherwise, or by an earlier version of the
    /// command.
    Unnamed,
    /// The process has exited.
    Ended,
    Running(OwnedFd),
    /// Process id, on a kernel without process descriptors.
    Id(Pid),
}

impl UpgradeCommand {
    fn open(named: Option<&str>) -> Self {
        let Some(named) = named else { return Self::Unnamed };
        let (id, started) = named.split_once(':').unwrap_or((named, ""));
        let id = id.parse().ok().filter(|id: &i32| *id > 1).and_then(Pid::from_raw);
        let Some(id) = id else { return Self::Unnamed };
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(process) => Self::Running(process),
            Err(Errno::SRCH) => return Self::Ended,
            Err(_) => Self::Id(id),
        };
        // The descriptor refers to its process even after the id is reused. An equal start time
        // confirms that the descriptor refers to the command.
        match (started.parse::<u64>().ok(), start_time(&id.as_raw_nonzero().to_string())) {
            (Some(named), Some(found)) if named != found => Self::Ended,
            _ => process,
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Unnamed => false,
            Self::Ended => true,
            Self::Running(process) => {
                let mut ready = [PollFd::new(process, PollFlags::IN)];
                poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            }
            Self::Id(id) => test_kill_process(*id) == Err(Errno::SRCH),
        }
    }
}

/// Opens the command's process, if named.
pub(crate) fn open() {
    let named = std::env::var(TAKES_OVER_VARIABLE).ok();
    // Later calls have no effect.
    let _ = COMMAND.set(UpgradeCommand::open(named.as_deref()));
}

/// Returns true if the `turnpike upgrade` that started this process has exited.
pub(crate) fn is_abandoned() -> bool {
    COMMAND.get().is_some_and(UpgradeCommand::has_ended)
}

/// Returns the value of [`TAKES_OVER_VARIABLE`] that identifies the calling process.
pub(crate) fn own_name() -> String {
    let id = std::process::id();
    start_time("self").map_or_else(|| id.to_string(), |started| format!("{id}:{started}"))
}

/// Returns the start time of a process in ticks since boot, or `None` if the time cannot be read.
fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses, and may contain spaces and parentheses.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(START_TIME_AT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_upgrade_ends_with_its_command_and_not_with_another_process_of_its_id() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = child.id().to_string();
        let started = start_time(&id).unwrap();
        let running = UpgradeCommand::open(Some(&format!("{id}:{started}")));
        assert!(!running.has_ended());
        // Without the start time, as in an earlier version of the command.
        let without_time = UpgradeCommand::open(Some(&id));
        assert!(!without_time.has_ended());
        let reused = UpgradeCommand::open(Some(&format!("{id}:{}", started + 1)));
        assert!(reused.has_ended(), "another process has the id now");

        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(running.has_ended() && without_time.has_ended());
        assert!(UpgradeCommand::open(Some(&id)).has_ended());
        for unnamed in [None, Some(""), Some("1"), Some("yes")] {
            assert!(!UpgradeCommand::open(unnamed).has_ended(), "{unnamed:?}");
        }
        assert!(!UpgradeCommand::open(Some(&own_name())).has_ended());
    }
}
