//! CPU affinity: the cores on which a thread may run.

use std::io;
use std::mem::MaybeUninit;

use crate::abi::sys::check;

const SET_BYTES: usize = size_of::<libc::cpu_set_t>();
/// Number of cores that a set can describe.
const MAX_CORES: usize = SET_BYTES * 8;

/// Returns the cores on which the calling thread may run, in ascending order. These are the cores
/// of the machine within the limits of a container or `taskset`.
///
/// # Errors
/// The machine has more than 1024 cores.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mut set = empty_set();
    // SAFETY: the kernel writes `set`, which has the given length. 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, SET_BYTES, &raw mut set) })?;
    // SAFETY: each index is below the number of bits of the set.
    Ok((0..MAX_CORES).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Restricts the calling thread to one core.
///
/// # Errors
/// Returns `InvalidInput` for a core that does not exist or is not allowed.
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    if core >= MAX_CORES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = empty_set();
    // SAFETY: `core` is below the number of bits of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set lives until the call returns, and has the given length. 0 is the calling
    // thread.
    check(unsafe { libc::sched_setaffinity(0, SET_BYTES, &raw const set) }).map(drop)
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: the set is an array of integers, for which zero is a valid value: no core.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_where_it_was_put() {
        // A separate thread, so the affinity of the test runner's thread does not change.
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
