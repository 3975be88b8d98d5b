//! Which cores a thread may run on.

use std::io;
use std::mem::MaybeUninit;

use crate::abi::sys::check;

const SET_BYTES: usize = size_of::<libc::cpu_set_t>();
/// Cores that a set can name.
const MAX_CORES: usize = SET_BYTES * 8;

/// The cores that the calling thread may run on, ascending: those of the machine, less what a
/// container or `taskset` takes away.
///
/// # Errors
/// A machine with more than 1024 cores.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mut set = empty_set();
    // SAFETY: `set` is there for the kernel to write and is as long as said. 0 is the caller.
    check(unsafe { libc::sched_getaffinity(0, SET_BYTES, &raw mut set) })?;
    // SAFETY: each index is below the number of bits of the set.
    Ok((0..MAX_CORES).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// `InvalidInput` for a core that does not exist or is not allowed.
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    CoreSet::of(&[core])?.apply(0)
}

/// Keeps another thread, of any process or of the kernel, on one core.
///
/// # Errors
/// `InvalidInput` for a core that does not exist or is not allowed; `PermissionDenied` where the
/// thread is somebody else's; ESRCH when there is no such thread.
pub fn pin_thread(thread: u32, core: usize) -> io::Result<()> {
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    CoreSet::of(&[core])?.apply(thread)
}

/// Some cores.
#[derive(Clone, Copy)]
pub(crate) struct CoreSet(libc::cpu_set_t);

impl CoreSet {
    /// These.
    pub(crate) fn of(cores: &[usize]) -> io::Result<Self> {
        let mut set = empty_set();
        for &core in cores {
            if core >= MAX_CORES {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            // SAFETY: `core` is below the number of bits of the set.
            unsafe { libc::CPU_SET(core, &mut set) };
        }
        Ok(Self(set))
    }

    /// Keeps a thread to them; 0 is the calling one.
    pub(crate) fn apply(&self, thread: libc::pid_t) -> io::Result<()> {
        // SAFETY: the set lives until the call returns and is as long as said.
        check(unsafe { libc::sched_setaffinity(thread, SET_BYTES, &raw const self.0) }).map(drop)
    }
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: the set is an array of integers, for which zero is a value: no core.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_where_it_was_put() {
        // A thread of its own, so that the test runner's is left alone.
        std::thread::spawn(|| {
            let cores = allowed_cores().unwrap();
            let last = *cores.last().unwrap();
            pin_current_thread(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn cores_that_do_not_exist_are_refused() {
        for core in [MAX_CORES - 1, MAX_CORES, usize::MAX] {
            let error = pin_current_thread(core).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{core}");
        }
    }
}
