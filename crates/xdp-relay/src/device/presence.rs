//! Detection of other servers in the same network namespace, in any container.
//!
//! A shared lock and a reserved number identify living servers. Both are released when the process
//! exits in any way, without leftovers.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread::sleep;
use std::time::Duration;

/// Number of attempts to take the lock from a server that is exiting. Such a server holds the lock
/// exclusively while it writes two settings.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Shared lock (`flock`) on the network namespace of the calling thread. All processes in the
/// namespace lock one file.
#[derive(Debug)]
pub(super) struct Presence(File);

impl Presence {
    /// Takes the shared lock. Returns `None` without `/proc`, or if another process holds the lock
    /// exclusively for too long. Servers do not detect each other in that case.
    pub(super) fn take() -> Option<Self> {
        let namespace = File::open("/proc/thread-self/ns/net").ok()?;
        for _ in 0..TRIES {
            match namespace.try_lock_shared() {
                Ok(()) => return Some(Self(namespace)),
                Err(TryLockError::WouldBlock) => sleep(BETWEEN_TRIES),
                Err(TryLockError::Error(_)) => return None,
            }
        }
        None
    }

    /// Returns another descriptor of the shared lock. The lock remains while any of its descriptors
    /// is open.
    pub(super) fn copy(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// Releases the shared lock. The last server that releases the lock gets the exclusive lock,
    /// until the result is dropped.
    pub(super) fn leave(self) -> Option<File> {
        // Each server that exits releases the shared lock before it requests the exclusive lock. Of
        // several that exit concurrently, the last gets the exclusive lock.
        self.0.try_lock().ok().map(|()| self.0)
    }
}

/// Number that no other living process of the network namespace has reserved.
#[derive(Debug)]
pub(crate) struct PresenceMark {
    number: u16,
    _socket: UnixDatagram,
}

impl PresenceMark {
    /// Reserves a random number.
    ///
    /// # Errors
    /// The process has no descriptors left, or Unix sockets are not available.
    pub(crate) fn take() -> io::Result<Self> {
        loop {
            let number = u16::from_ne_bytes(linux_net::random_bytes());
            match bind(number) {
                Ok(socket) => return Ok(Self { number, _socket: socket }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    /// Returns true if a living process has reserved the number, or if this cannot be determined.
    pub(super) fn is_taken(number: u16) -> bool {
        bind(number).is_err()
    }
}

/// Binds a socket in the abstract namespace of Unix sockets. Each network namespace has a separate
/// abstract namespace.
fn bind(number: u16) -> io::Result<UnixDatagram> {
    let name = format!("turnpike/program/{number:04x}");
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::*;

    #[test]
    fn the_last_one_to_leave_knows_it() {
        let (Some(here), Some(elsewhere)) = (namespace(), namespace()) else { return };
        let take = || here.run(|| Presence::take().unwrap());
        let (first, second, third) = (take(), take(), take());
        let other = elsewhere.run(|| Presence::take().unwrap());
        assert!(second.leave().is_none());
        assert!(first.leave().is_none());
        let alone = third.leave().unwrap();
        assert!(other.leave().is_some(), "another namespace has a lock of its own");
        // A new server waits for a server that is exiting.
        let comes = std::thread::scope(|scope| {
            let comes = scope.spawn(take);
            drop(alone);
            comes.join().unwrap()
        });
        assert!(comes.leave().is_some());
    }

    #[test]
    fn marks_are_of_one_namespace_and_end_with_their_owner() {
        let (Some(here), Some(elsewhere)) = (namespace(), namespace()) else { return };
        let mark = here.run(|| PresenceMark::take().unwrap());
        let number = mark.number();
        assert!(here.run(|| PresenceMark::is_taken(number)));
        assert!(!elsewhere.run(|| PresenceMark::is_taken(number)));
        drop(mark);
        assert!(!here.run(|| PresenceMark::is_taken(number)));
    }
}
