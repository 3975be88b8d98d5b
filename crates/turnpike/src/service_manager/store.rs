//! Descriptor store of the service manager (`FileDescriptorStoreMax=`, sd_pid_notify_with_fds(3)).
//! The successor starts with the descriptors that a process of the service has stored. The store is
//! emptied if the service is stopped and not started again.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use linux_net::passed_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::handover::{Parked, close_parked};

/// Environment variable with the capacity of the store in descriptors. systemd sets the variable
/// since version 254. For earlier versions the packages' unit does.
pub(super) const STORE: &str = "FDSTORE";

/// Environment variables about the descriptors that the process was started with
/// (sd_listen_fds(3)).
const COUNT: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";
const PROCESS: &str = "LISTEN_PID";

/// Names of the descriptors in the store.
const STATE: &str = "turnpike-state";
const SOCKETS: &str = "turnpike-sockets";

/// Maximum time until the manager has read all messages.
const BARRIER_DEADLINE: Duration = Duration::from_secs(5);

/// Parked descriptors of the predecessor.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Pair(Parked),
    /// Not exactly one state and one set of sockets: a message about one of them was lost. The
    /// descriptors are closed.
    Part,
}

/// Stores both descriptors in place of older ones, and waits until the manager has received them.
/// Otherwise the manager might discard the descriptors when the process exits.
pub(super) fn keep(manager: &UnixDatagram, parked: &Parked) -> io::Result<()> {
    // Earlier descriptors remain if a removal was lost.
    let _ = remove(manager);
    let kept = store(manager, parked);
    if kept.is_err() {
        // The first descriptor is unusable without the second.
        let _ = remove(manager);
    }
    kept?;
    wait_until_read(manager)
}

fn remove(manager: &UnixDatagram) -> io::Result<()> {
    removal().iter().try_for_each(|message| manager.send(message.as_bytes()).map(drop))
}

fn store(manager: &UnixDatagram, parked: &Parked) -> io::Result<()> {
    for (name, fd) in [(STATE, &parked.state), (SOCKETS, &parked.sockets)] {
        // Without `FDPOLL=0` the manager would treat the closed sending end as a hang-up, and close
        // the descriptor.
        send(manager, &format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), fd.as_fd())?;
    }
    Ok(())
}

fn wait_until_read(manager: &UnixDatagram) -> io::Result<()> {
    let (heard, barrier) = pipe_with(PipeFlags::CLOEXEC)?;
    send(manager, "BARRIER=1", barrier.as_fd())?;
    drop(barrier);
    // The manager closes its copy after it has read all preceding messages.
    let deadline = Timespec::try_from(BARRIER_DEADLINE).map_err(io::Error::other)?;
    let mut closed = [PollFd::new(&heard, PollFlags::empty())];
    match poll(&mut closed, Some(&deadline))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Returns the messages that remove both descriptors.
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

/// Returns the parked descriptors that this process was started with. Other descriptors are
/// ignored.
pub(super) fn found(variable: impl Fn(&str) -> Option<String>) -> Found {
    // A process of the service may pass its variables to a child process, for which they are not
    // valid.
    let is_meant = variable(PROCESS).is_some_and(|id| id == std::process::id().to_string());
    let count = variable(COUNT).and_then(|count| count.parse().ok()).filter(|_| is_meant);
    let Some(count) = count else { return Found::Nothing };
    let names = variable(NAMES).unwrap_or_default();
    named(names.split(':'), passed_descriptors(count))
}

fn named<'a>(names: impl Iterator<Item = &'a str>, passed: Vec<OwnedFd>) -> Found {
    let (mut state, mut sockets) = (Vec::new(), Vec::new());
    for (name, fd) in names.zip(passed) {
        match name {
            STATE => state.push(fd),
            SOCKETS => sockets.push(fd),
            _ => {}
        }
    }
    match (state.len(), sockets.len(), state.pop(), sockets.pop()) {
        (1, 1, Some(state), Some(sockets)) => Found::Pair(Parked { state, sockets }),
        (0, 0, ..) => Found::Nothing,
        (.., last) => {
            // The manager also has a descriptor of each Unix socket. Listeners in flight in a
            // socket would keep their ports in use.
            for sockets in sockets.into_iter().chain(last) {
                let _ = close_parked(sockets);
            }
            Found::Part
        }
    }
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
            named(names.split(':'), (0..count).map(|_| file()).collect())
        };
        for pair in ["turnpike-state:turnpike-sockets", "turnpike-sockets:of-others:turnpike-state"]
        {
            assert!(matches!(found(pair), Found::Pair(_)), "{pair}");
        }
        for nothing in ["", "a:b"] {
            assert!(matches!(found(nothing), Found::Nothing), "{nothing}");
        }
        let three = "turnpike-state:turnpike-sockets:turnpike-state";
        for part in ["turnpike-state", "turnpike-sockets", three] {
            assert!(matches!(found(part), Found::Part), "{part}");
        }
    }

    /// The manager's descriptor of the Unix socket remains open, and a listener in flight would
    /// keep its port in use.
    #[test]
    fn sockets_of_half_a_pair_are_closed() {
        let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (sender, sockets) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [listener.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&sender, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).unwrap();
        drop(listener);
        let of_manager = sockets.try_clone().unwrap();
        assert!(std::net::UdpSocket::bind(at).is_err());
        let found = named([SOCKETS].into_iter(), vec![sockets.into()]);
        assert!(matches!(found, Found::Part));
        assert!(std::net::UdpSocket::bind(at).is_ok(), "it is kept");
        drop(of_manager);
    }

    #[test]
    fn older_ones_are_removed_first() {
        let (server, manager) = UnixDatagram::pair().unwrap();
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut bytes = [0; 100];
            // Each descriptor is closed when received: the manager has read everything.
            for _ in 0..5 {
                let len = manager.recv(&mut bytes).unwrap();
                all.push(String::from_utf8_lossy(&bytes[..len]).into_owned());
            }
            all
        });
        keep(&server, &Parked { state: file(), sockets: file() }).unwrap();
        let all = read.join().unwrap();
        let verbs: Vec<_> = all.iter().map(|one| one.split('=').next().unwrap()).collect();
        let removed = "FDSTOREREMOVE";
        assert_eq!(verbs, [removed, removed, "FDSTORE", "FDSTORE", "BARRIER"]);
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
        assert!(matches!(found(variables(std::process::id() + 1)), Found::Nothing));
        assert!(matches!(found(|_| None), Found::Nothing));
    }

    #[test]
    fn a_manager_that_never_reads_is_not_waited_for_for_ever() {
        let (server, manager) = UnixDatagram::pair().unwrap();
        let parked = Parked { state: file(), sockets: file() };
        // The manager has exited: its copies are closed.
        drop(manager);
        assert!(keep(&server, &parked).is_err());
    }
}
