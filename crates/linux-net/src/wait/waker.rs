//! Waking a thread that waits in epoll: an eventfd.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::abi::sys::check;

/// The waking end; any thread may have a clone.
#[derive(Clone, Debug)]
pub struct Waker {
    counter: Arc<File>,
}

/// The woken end: readable from a wake-up until it is drained.
#[derive(Debug)]
pub struct WakeReceiver {
    counter: Arc<File>,
}

impl Waker {
    /// Creates both ends.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<(Self, WakeReceiver)> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the kernel has just returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let counter = Arc::new(File::from(fd));
        Ok((Self { counter: Arc::clone(&counter) }, WakeReceiver { counter }))
    }

    /// Wakes the other end. Wake-ups that were not drained yet count as one.
    pub fn wake(&self) {
        // The one possible error is a counter at its limit: a wake-up is pending already.
        let _ = (&*self.counter).write(&1_u64.to_ne_bytes());
    }
}

impl WakeReceiver {
    /// Consumes all pending wake-ups; true if there was one. Drain before reading the queue: a
    /// later message wakes again.
    pub fn drain(&self) -> bool {
        (&*self.counter).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
