//! A thread that runs only when no other wants to.

use std::io;

use crate::sys::check;

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

#[cfg(test)]
mod tests {
    use super::*;

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
