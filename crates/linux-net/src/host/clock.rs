//! Clocks of the host, the only source of time for the data plane.

use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use turn_types::{Instant, Now, UnixSeconds};

/// Clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// Returns the monotonic time and the wall-clock time. The monotonic clock counts from the
    /// start of the host and stops while the host sleeps. All threads and processes read equal
    /// values.
    #[must_use]
    pub fn now() -> Now {
        Now { instant: monotonic(), unix: wall() }
    }

    /// Returns only the monotonic time.
    #[must_use]
    pub fn instant() -> Instant {
        monotonic()
    }
}

/// Returns the CPU time of the calling thread. On most kernels this includes the time of
/// interrupts.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn monotonic() -> Instant {
    Instant::from_nanos(nanos(libc::CLOCK_MONOTONIC))
}

/// Returns the nanoseconds of a clock that every kernel has.
fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `time` is a location for the kernel to write. If the kernel does not write, the
    // zeroed bytes are still a valid value.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    // Both fields are positive, and the sum overflows after 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the wall-clock time. A clock set before 1970 is read as 1970.
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
}
