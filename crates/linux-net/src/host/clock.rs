//! The only place that reads a clock.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use turn_types::{Instant, Now, UnixSeconds};

/// The clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// Both clocks. The monotonic one counts from the start of the host and stands while it
    /// sleeps; all threads and processes see the same.
    #[must_use]
    pub fn now() -> Now {
        Now { instant: monotonic(), unix: wall() }
    }

    /// The monotonic one alone.
    #[must_use]
    pub fn instant() -> Instant {
        monotonic()
    }
}

/// How long the calling thread has run. Time that others took from it is not in it, but for that
/// of interrupts, on most kernels.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// How long all threads of a process have run, also those that have ended. Time of interrupts that
/// came meanwhile is in it on kernels that do not tell it apart.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_time(process: u32) -> io::Result<Duration> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let process = libc::pid_t::try_from(process).map_err(|_| none())?;
    let mut clock = libc::CLOCK_PROCESS_CPUTIME_ID;
    // SAFETY: `clock` is there for the C library to write. It writes nothing but the number of a
    // clock, and nothing where it fails.
    let error = unsafe { libc::clock_getcpuclockid(process, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    try_nanos(clock).map(Duration::from_nanos)
}

fn monotonic() -> Instant {
    Instant::from_nanos(nanos(libc::CLOCK_MONOTONIC))
}

/// Of a clock that is always there.
fn nanos(clock: libc::clockid_t) -> u64 {
    try_nanos(clock).unwrap_or_default()
}

/// Of a clock that may be gone.
fn try_nanos(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `time` is there for the kernel to write, and where it does not, the zeroed bytes are
    // still a value.
    let (status, time) = unsafe {
        let status = libc::clock_gettime(clock, time.as_mut_ptr());
        (status, time.assume_init())
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both are positive, and the sum overflows after 584 years.
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A clock set before 1970 reads as 1970.
fn wall() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_grows_older() {
        let first = thread_cpu_time();
        while thread_cpu_time() == first {}
        assert!(thread_cpu_time() > first);
    }

    #[test]
    fn monotonic_time_does_not_go_back_and_wall_time_is_of_this_century() {
        let (first, second) = (Clock::now(), Clock::now());
        assert!(first.instant > Instant::ZERO);
        assert!(second.instant >= first.instant);
        assert!(first.unix >= UnixSeconds(1_700_000_000), "{first:?}");
    }

    #[test]
    fn a_process_is_as_old_as_its_threads_whether_they_still_run_or_not() {
        let own = std::process::id();
        let before = process_cpu_time(own).unwrap();
        let work = || while thread_cpu_time() < Duration::from_millis(20) {};
        std::thread::spawn(work).join().unwrap();
        assert!(process_cpu_time(own).unwrap() - before >= Duration::from_millis(20));
    }

    #[test]
    fn a_process_that_is_gone_has_no_clock() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        assert!(process_cpu_time(process).is_err());
        assert!(process_cpu_time(u32::MAX).is_err());
    }
}
