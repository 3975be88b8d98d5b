//! The service manager's store of descriptors (`FileDescriptorStoreMax=`, sd_pid_notify_with_fds(3)): what a process of the service leaves
//! there, the next one is started with. A service that is stopped, and not started again, loses it.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use linux_net::passed_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::handover::Parked;

/// Number of descriptors that the store takes: systemd sets it from version 254 on, and the packages' unit for earlier ones.
pub(super) const STORE: &str = "FDSTORE";

/// Descriptors that the process is started with (sd_listen_fds(3)).
const COUNT: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";
const PROCESS: &str = "LISTEN_PID";

/// Names in the store.
const STATE: &str = "turnpike-state";
const SOCKETS: &str = "turnpike-sockets";

/// Longest time until the manager has read everything.
const BARRIER_DEADLINE: Duration = Duration::from_secs(5);

/// Stores both, and waits until the manager has them: it might close them with the process otherwise.
pub(super) fn keep(manager: &UnixDatagram, parked: &Parked) -> io::Result<()> {
    for (name, fd) in [(STATE, &parked.state), (SOCKETS, &parked.sockets)] {
        // It would take the end of the Unix socket for an end of its use.
        send(manager, &format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), fd.as_fd())?;
    }
    let (heard, barrier) = pipe_with(PipeFlags::CLOEXEC)?;
    send(manager, "BARRIER=1", barrier.as_fd())?;
    drop(barrier);
    // The manager closes its copy when it has read everything before.
    let deadline = Timespec::try_from(BARRIER_DEADLINE).map_err(io::Error::other)?;
    let mut closed = [PollFd::new(&heard, PollFlags::empty())];
    match poll(&mut closed, Some(&deadline))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Messages that remove both.
pub(super) fn removal() -> [String; 2] {
    [STATE, SOCKETS].map(|name| format!("FDSTOREREMOVE=1\nFDNAME={name}"))
}

fn send(manager: &UnixDatagram, message: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let message = [IoSlice::new(message.as_bytes())];
    sendmsg(manager, &message, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What the process before has left: descriptors that this one was started with. Of others it takes none.
pub(super) fn found(variable: impl Fn(&str) -> Option<String>) -> Option<Parked> {
    // Variables that a process of the service hands to a program of its own are not for that.
    let is_meant = variable(PROCESS)? == std::process::id().to_string();
    let count: u16 = variable(COUNT)?.parse().ok()?;
    if !is_meant {
        return None;
    }
    let names = variable(NAMES).unwrap_or_default();
    named(names.split(':'), passed_descriptors(count))
}

/// The pair of these names; `None` if there is not one of each.
fn named<'a>(names: impl Iterator<Item = &'a str>, passed: Vec<OwnedFd>) -> Option<Parked> {
    let (mut state, mut sockets) = (Vec::new(), Vec::new());
    for (name, fd) in names.zip(passed) {
        match name {
            STATE => state.push(fd),
            SOCKETS => sockets.push(fd),
            _ => {}
        }
    }
    let one = |mut some: Vec<OwnedFd>| some.pop().filter(|_| some.is_empty());
    Some(Parked { state: one(state)?, sockets: one(sockets)? })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn file() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_pair_is_found_by_its_names() {
        let found = |names: &str| {
            let count = names.split(':').count();
            named(names.split(':'), (0..count).map(|_| file()).collect()).is_some()
        };
        assert!(found("turnpike-state:turnpike-sockets"));
        assert!(found("turnpike-sockets:of-others:turnpike-state"));
        for wrong in ["", "turnpike-state", "turnpike-state:turnpike-sockets:turnpike-state", "a:b"]
        {
            assert!(!found(wrong), "{wrong}");
        }
    }

    #[test]
    fn variables_for_another_process_are_not_obeyed() {
        let variables = |process: u32| {
            move |name: &str| match name {
                PROCESS => Some(process.to_string()),
                COUNT => Some("2".to_owned()),
                NAMES => Some("turnpike-state:turnpike-sockets".to_owned()),
                _ => None,
            }
        };
        assert!(found(variables(std::process::id() + 1)).is_none());
        assert!(found(|_| None).is_none());
    }

    #[test]
    fn a_manager_that_never_reads_is_not_waited_for_for_ever() {
        let (server, manager) = UnixDatagram::pair().unwrap();
        let parked = Parked { state: file(), sockets: file() };
        // The manager is gone: its copies are closed.
        drop(manager);
        assert!(keep(&server, &parked).is_err());
    }
}
