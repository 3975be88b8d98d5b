//! Processes with a time limit and recorded output.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Result of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Exit status 0.
    Success,
    /// Another exit status, or death by a signal.
    Failure,
    /// The time limit passed, and the process was killed with all descendants.
    TimeLimit,
}

/// Exited process.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Result.
    pub(crate) end: End,
    /// Standard output and standard error, interleaved by line.
    pub(crate) output: String,
    /// Times of the process.
    pub(crate) times: Times,
}

/// Times of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Times {
    /// Time from start to exit.
    pub(crate) duration: Duration,
    /// Processor time of the process and of descendants that were waited for.
    pub(crate) processor: Duration,
}

/// Variable in the environment of each process that [`run`] starts. Contains the path of the log:
/// descendants are found by it even if their parents have exited.
const STARTED_FOR: &str = "STARTED_FOR_LOG";

/// Number of readings of an empty environment, in some 100 ms.
const READS: u32 = 50;

/// Runs a command, and kills the process with all descendants at the time limit. Descendants that
/// survive a failed process are killed as well. Output goes through the file `log`, which also
/// preserves the output of a killed process.
///
/// # Errors
/// The command cannot be started, or `log` cannot be written.
pub(crate) fn run(command: &mut Command, limit: Duration, log: &Path) -> Result<Ended> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env(STARTED_FOR, log);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let waited = ends_within(&child, limit);
    let is_in_time = matches!(waited, Ok(true));
    if !is_in_time {
        kill_with_descendants(child.id());
    }
    let processor = processor_time(child.id()).unwrap_or_default();
    let end = match child.wait()?.success() {
        _ if !is_in_time => End::TimeLimit,
        true => End::Success,
        false => End::Failure,
    };
    if end != End::Success {
        started_for(log).into_iter().for_each(kill);
    }
    waited?;
    let times = Times { duration: started.elapsed(), processor };
    let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    // A file that remains is overwritten by the next run.
    let _ = fs::remove_file(log);
    Ok(Ended { end, output, times })
}

/// Waits for a process to exit. Returns false if the process still runs after `limit`.
fn ends_within(child: &Child, limit: Duration) -> Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs())?,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the processor time of an exited process and of its descendants that were waited for.
fn processor_time(id: u32) -> Option<Duration> {
    /// Index of utime after the program's name, which may contain spaces. The next three fields are
    /// stime, and both for descendants (proc_pid_stat(5)).
    const UTIME: usize = 11;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields = stat.rsplit_once(") ")?.1.split(' ').skip(UTIME).take(4);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Some(Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).ok()?)
}

/// Kills a process and all descendants.
fn kill_with_descendants(id: u32) {
    let mut found = vec![id];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        found.extend(children(*parent));
        at += 1;
    }
    found.into_iter().for_each(kill);
}

fn kill(id: u32) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // An error means that the process has exited.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Lists running processes that were started for the log.
fn started_for(log: &Path) -> Vec<u32> {
    let mark = format!("{STARTED_FOR}={}", log.display()).into_bytes();
    let is_marked = |process: &Path| {
        environment(process).split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbered.filter(|id: &u32| is_marked(Path::new(&format!("/proc/{id}")))).collect()
}

/// Reads the environment of a process. A process within execve(2) has none for a moment, and is
/// read again. Threads of the kernel have neither an environment nor a program.
fn environment(process: &Path) -> Vec<u8> {
    for _ in 0..READS {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        if !environment.is_empty() || fs::read_link(process.join("exe")).is_err() {
            return environment;
        }
        thread::sleep(Duration::from_millis(2));
    }
    Vec::new()
}

/// Lists the running children of a process.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(script: &str, limit: Duration) -> Ended {
        let log =
            std::env::temp_dir().join(format!("process-{}-{}", std::process::id(), script.len()));
        run(Command::new("sh").args(["-c", script]), limit, &log).unwrap()
    }

    #[test]
    fn an_end_is_told_with_the_output() {
        let ended = run_shell("echo out; echo err >&2", Duration::from_secs(60));
        assert_eq!((ended.end, &*ended.output), (End::Success, "out\nerr\n"));
        assert_eq!(run_shell("exit 3", Duration::from_secs(60)).end, End::Failure);
        assert_eq!(run_shell("kill -9 $$; true", Duration::from_secs(60)).end, End::Failure);
    }

    #[test]
    fn the_processor_time_includes_descendants() {
        let busy = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); true";
        let times = run_shell(busy, Duration::from_secs(60)).times;
        assert!(times.processor > Duration::ZERO, "{times:?}");
    }

    #[test]
    fn at_the_time_limit_descendants_end_as_well_and_the_output_so_far_is_kept() {
        let script = "echo begun; (sleep 1000 & echo child $!; wait)";
        let ended = run_shell(script, Duration::from_millis(500));
        assert_eq!(ended.end, End::TimeLimit);
        let child =
            ended.output.lines().find_map(|line| line.strip_prefix("child ")).expect("its id");
        assert!(ended.output.starts_with("begun\n"), "{}", ended.output);
        wait_for_end(child);
    }

    #[test]
    fn descendants_of_exited_parents_end_with_a_failed_process() {
        let ended = run_shell("(sleep 1001 & echo child $!); exit 1", Duration::from_secs(60));
        assert_eq!(ended.end, End::Failure);
        wait_for_end(ended.output.trim().strip_prefix("child ").expect("its id"));
    }

    fn wait_for_end(child: &str) {
        let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // Dead, if not yet collected by the first process.
        let is_dead = || state().is_empty() || state().contains(") Z ");
        while !is_dead() {
            thread::yield_now();
        }
    }
}
