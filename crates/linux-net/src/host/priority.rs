//! Threads that run only when no other wants to, and before all others.

use std::io;

use crate::abi::sys::check;

/// Lets the calling thread run only while nobody else wants its core: SCHED_IDLE, which any waking
/// thread of the same control group displaces at once. Its time is accounted as `nice` in
/// `/proc/stat`. It cannot be undone without privileges, so give it a thread of its own.
///
/// # Errors
/// Only where a sandbox forbids the calls.
pub fn run_when_idle() -> io::Result<()> {
    // SAFETY: no memory is passed. 0 is the caller: Linux has a nice value for each thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) })?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` lives until the call returns. 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }).map(drop)
}

/// Lets another thread, of any process or of the kernel, run before all ordinary ones (SCHED_FIFO, at
/// its lowest priority).
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
