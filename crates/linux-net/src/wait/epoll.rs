//! Waiting for descriptors with epoll: level-triggered, unless edge-triggered is requested.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::c_int;

use crate::abi::sys::check;

/// Events to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable data, or a connection to accept.
    Read,
    /// Space to write, or an established connection.
    Write,
    /// Readable or writable.
    ReadWrite,
    /// Only errors and hang-ups.
    ErrorsOnly,
    /// Only errors and hang-ups, each reported once. For errors that the caller cannot handle
    /// immediately.
    ErrorsOnce,
    /// Readable or writable, edge-triggered. After an event the caller must read and write until
    /// neither makes progress.
    Changes,
}

impl Interest {
    const fn bits(self) -> u32 {
        let (read, write) = ((libc::EPOLLIN | libc::EPOLLRDHUP) as u32, libc::EPOLLOUT as u32);
        match self {
            Self::Read => read,
            Self::Write => write,
            Self::ReadWrite => read | write,
            Self::ErrorsOnly => 0,
            Self::ErrorsOnce => libc::EPOLLET as u32,
            Self::Changes => read | write | libc::EPOLLET as u32,
        }
    }
}

/// Readiness of a descriptor, reported by [`Epoll::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number with which the descriptor was added.
    pub token: u64,
    /// True if reading returns data, the end of the stream, or an error.
    pub readable: bool,
    /// True if the descriptor is writable.
    pub writable: bool,
    /// True if an error is pending. For a UDP socket the error queue may have entries.
    pub error: bool,
    /// True if the remote end of a stream has closed at least one direction.
    pub hangup: bool,
}

/// Buffer for the events of one wait, allocated once and reused.
pub struct Events {
    list: Vec<libc::epoll_event>,
    len: usize,
}

impl Events {
    /// Allocates a buffer for `capacity` events, at least 1. Further ready descriptors are reported
    /// by the next wait.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, c_int::MAX as usize);
        Self { list: vec![libc::epoll_event { events: 0, u64: 0 }; capacity], len: 0 }
    }

    /// Returns the events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list[..self.len].iter().map(|event| {
            let bits = event.events;
            let any = |wanted: c_int| bits & wanted as u32 != 0;
            Event {
                token: event.u64,
                readable: any(libc::EPOLLIN),
                writable: any(libc::EPOLLOUT),
                error: any(libc::EPOLLERR),
                hangup: any(libc::EPOLLHUP | libc::EPOLLRDHUP),
            }
        })
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Set of descriptors to wait for, each with a number that the caller assigns.
///
/// A closed descriptor is removed from the set automatically. Events of that descriptor may still
/// be in [`Events`]. Numbers should therefore not be reused within one iteration.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Adds a descriptor to the set.
    ///
    /// # Errors
    /// The descriptor is already in the set, memory is short, or the set exceeds
    /// `fs.epoll.max_user_watches`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, &fd, (token, interest.bits()))
    }

    /// Changes the number and the interest of a descriptor.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, &fd, (token, interest.bits()))
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, &fd, (0, 0))
    }

    /// Waits until a descriptor is ready, up to `timeout`. `None` waits without limit, and zero
    /// does not wait. Returns the number of events, which is 0 after the timeout or a signal. Times
    /// are rounded up to milliseconds, so that a timer has expired when the wait returns.
    ///
    /// # Errors
    /// The wait fails only because of a fault of the program.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.len = 0;
        // SAFETY: the list has `list.len()` elements for the kernel to write, and lives until the
        // call returns.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.list.as_mut_ptr(),
                events.list.len() as c_int,
                milliseconds(timeout),
            )
        };
        match check(count) {
            Ok(count) => events.len = usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(events.len)
    }

    fn control(&self, what: c_int, fd: &impl AsFd, (token, bits): (u64, u32)) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits, u64: token };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: `event` lives until the call returns. The kernel copies `event` during the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
    }
}

/// Converts a timeout to epoll's unit. -1 is unlimited, other times are rounded up to milliseconds.
fn milliseconds(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |time| {
        c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_millis(20))), 20);
        assert_eq!(milliseconds(Some(Duration::from_micros(20_001))), 21);
        assert_eq!(milliseconds(Some(Duration::MAX)), c_int::MAX);
    }
}
