//! Waking of a thread that waits in epoll, with an eventfd.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::abi::sys::check;

/// Sender of wake-ups. Any thread may have a clone.
#[derive(Clone, Debug)]
pub struct Waker {
    counter: Arc<File>,
}

/// Receiver of wake-ups, readable from a wake-up until [`drain`](Self::drain).
#[derive(Debug)]
pub struct WakeReceiver {
    counter: Arc<File>,
}

impl Waker {
    /// Creates a sender and the receiver of wake-ups.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<(Self, WakeReceiver)> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the kernel has just returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let counter = Arc::new(File::from(fd));
        Ok((Self { counter: Arc::clone(&counter) }, WakeReceiver { counter }))
    }

    /// Wakes the receiver. Several wake-ups before a drain are combined.
    pub fn wake(&self) {
        // The only possible error is a counter at the limit. A wake-up is already pending in that
        // case.
        let _ = (&*self.counter).write(&1_u64.to_ne_bytes());
    }
}

impl WakeReceiver {
    /// Consumes all pending wake-ups, and returns true if there was one. Drain before reading the
    /// queue, so a message that arrives later causes another wake-up.
    pub fn drain(&self) -> bool {
        (&*self.counter).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
