//! Descriptors that this process has inherited from the program that started it.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use crate::abi::sys::check;

/// First number of the descriptors that a service manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;

/// Takes ownership of the descriptors that this process was started with. The numbers start at 3,
/// and up to `count` numbers are checked. The search stops at the first number without an inherited
/// descriptor. Each descriptor is returned once. Child processes do not inherit the returned
/// descriptors.
#[must_use]
pub fn passed_descriptors(count: u16) -> Vec<OwnedFd> {
    take_from(FIRST, count)
}

fn take_from(first: RawFd, count: u16) -> Vec<OwnedFd> {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _guard = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    (first..).take(count.into()).map_while(take).collect()
}

fn take(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the call accesses no memory, and fails for a number without a file.
    let flags = check(unsafe { libc::fcntl(number, libc::F_GETFD) }).ok()?;
    if flags & libc::FD_CLOEXEC != 0 {
        return None;
    }
    // SAFETY: the call accesses no memory, and fails for a number without a file.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) }).ok()?;
    // SAFETY: the file is open, and this process has no other owner of it. The standard library and
    // this crate open files with FD_CLOEXEC, and the descriptor did not have the flag. It was
    // therefore inherited by `exec`. The flag is set now, so a second call does not reach this
    // line.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_descriptor_is_given_once_and_one_of_this_process_never() {
        let own = File::open("/dev/null").unwrap();
        assert!(take_from(own.as_raw_fd(), 1).is_empty());
        // Simulates inheritance by `exec`, at a number that no other test uses.
        // SAFETY: the copy is new, at a free number from 700 on, and has no owner.
        let passed = check(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_DUPFD, 700) }).unwrap();
        let taken = take_from(passed, 5);
        assert_eq!(taken.iter().map(|fd| fd.as_raw_fd()).collect::<Vec<_>>(), [passed]);
        assert!(take_from(passed, 5).is_empty());
        drop(taken);
        assert!(take_from(passed, 1).is_empty());
    }
}
