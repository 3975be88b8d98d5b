//! Cores, priorities and CPU time of threads.

use std::io;
use std::time::Duration;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::check;

/// Restricts another thread, of any process or of the kernel, to one core.
///
/// # Errors
/// `InvalidInput` for a core that does not exist or is not allowed; `PermissionDenied` for a thread
/// of another user; ESRCH when there is no such thread.
pub fn pin_thread(thread: u32, core: usize) -> io::Result<()> {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
    CoreSet::of(&[core])?.apply(Some(thread.ok_or(io::ErrorKind::InvalidInput)?))
}

/// A set of cores.
#[derive(Clone, Copy)]
pub(crate) struct CoreSet(CpuSet);

impl CoreSet {
    pub(crate) fn of(cores: &[usize]) -> io::Result<Self> {
        let mut set = CpuSet::new();
        for &core in cores {
            if core >= CpuSet::MAX_CPU {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            set.set(core);
        }
        Ok(Self(set))
    }

    /// Restricts a thread to the set; `None` is the calling one.
    pub(crate) fn apply(&self, thread: Option<Pid>) -> io::Result<()> {
        Ok(sched_setaffinity(thread, &self.0)?)
    }
}

/// CPU time of all threads of a process, including those that have ended. Whether it includes
/// interrupts depends on the kernel's configuration.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_time(process: u32) -> io::Result<Duration> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let process = libc::pid_t::try_from(process).map_err(|_| none())?;
    let mut clock = libc::CLOCK_PROCESS_CPUTIME_ID;
    // SAFETY: `clock` lives until the call returns, which writes the number of a clock or nothing.
    let error = unsafe { libc::clock_getcpuclockid(process, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives until the call returns and is the kernel's to write.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    // Neither is negative.
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Gives the calling thread the policy SCHED_IDLE: any waking thread of the same control group
/// preempts it at once. Its time is accounted as `nice` in
/// `/proc/stat`. It cannot be undone without privileges, so give it a thread of its own.
///
/// # Errors
/// Only where a sandbox forbids the calls.
pub fn run_when_idle() -> io::Result<()> {
    // Linux has a nice value for each thread.
    setpriority_process(None, 19)?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` lives until the call returns. 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }).map(drop)
}

/// Gives another thread, of any process or of the kernel, the lowest real-time priority
/// (SCHED_FIFO): it runs before all ordinary ones.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE`; ESRCH when there is no such thread.
pub fn run_first(thread: u32) -> io::Result<()> {
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` lives until the call returns.
    check(unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const parameters) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_all_threads_of_a_process_that_exists() {
        let own = std::process::id();
        let before = process_cpu_time(own).unwrap();
        let work = || (0..3_000_000_u64).fold(1, |a, b| std::hint::black_box(a ^ b));
        std::thread::spawn(work).join().unwrap();
        assert!(process_cpu_time(own).unwrap() > before);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        assert!(process_cpu_time(process).is_err());
        assert!(process_cpu_time(u32::MAX).is_err());
    }

    #[test]
    fn a_thread_that_is_not_there_cannot_be_first() {
        assert!(run_first(u32::MAX).is_err());
        assert!(run_first(i32::MAX as u32).is_err());
    }

    #[test]
    fn a_thread_becomes_idle_alone() {
        std::thread::spawn(|| {
            run_when_idle().unwrap();
            // SAFETY: no memory is passed.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }
}
