//! Unix socket connection between the processes of a hand-over.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use state_format::Value;

use super::PATIENCE;
use super::messages::Step;
use super::passing::{
    DESCRIPTORS_MAX, Inlet, Outlet, read_message, receive_descriptors, receive_part, send_part,
    write_message,
};

/// Pause between attempts while the kernel holds the maximum number of in-flight descriptors of one
/// user.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Connection with the other process of a hand-over.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    /// Process id of the other process.
    process: u32,
}

impl Wire {
    /// Creates a connection from a connected stream.
    ///
    /// # Errors
    /// The other process runs as another user and not as root. Such processes are refused, because
    /// all keys of this process pass through the connection.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let peer = sockopt::socket_peercred(&stream)?;
        let (other, own) = (peer.uid, rustix::process::geteuid());
        if other != own && !other.is_root() {
            let what = format!("the other process is of user {}", other.as_raw());
            return Err(io::Error::new(ErrorKind::PermissionDenied, what));
        }
        let process = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        let wire = Self { stream, process };
        wire.set_patience(PATIENCE)?;
        wire.stream.set_write_timeout(Some(PATIENCE))?;
        Ok(wire)
    }

    /// Returns the process id of the other process.
    pub(super) const fn process(&self) -> u32 {
        self.process
    }

    /// Sets the maximum wait for each read of a message.
    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Removes the limit of waits for messages.
    pub(super) fn wait_for_ever(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    pub(super) fn expect(&mut self, expected: Step) -> io::Result<()> {
        let step: Step = self.receive()?;
        if step == expected { Ok(()) } else { Err(unexpected(step, expected)) }
    }

    /// Returns true if the other process has sent data, or closed the connection, within
    /// `patience`.
    pub(super) fn is_readable(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut ends = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut ends, Some(&patience)) {
            // A signal interrupted the wait.
            Err(Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// Returns true if the other process has closed the connection. Data sent earlier may still be
    /// readable.
    pub(super) fn is_gone(&self) -> bool {
        let mut ends = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Returns the error for a step other than the expected step.
pub(super) fn unexpected(step: Step, expected: Step) -> io::Error {
    let what = format!("the other process says {step:?} instead of {expected:?}");
    io::Error::new(ErrorKind::InvalidData, what)
}

impl Outlet for Wire {
    fn send(&mut self, message: &impl Value) -> io::Result<()> {
        write_message(&mut self.stream, message)
    }

    fn send_descriptors(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        for part in descriptors.chunks(DESCRIPTORS_MAX) {
            while let Err(error) = send_part(&self.stream, &[0], part) {
                if error != Errno::TOOMANYREFS || Instant::now() > until {
                    return Err(error.into());
                }
                sleep(FULL_PAUSE);
            }
        }
        Ok(())
    }
}

impl Inlet for Wire {
    fn receive<T: Value>(&mut self) -> io::Result<T> {
        read_message(&mut self.stream).map_err(|error| {
            if error.kind() == ErrorKind::WouldBlock {
                return io::Error::new(ErrorKind::TimedOut, "the other process does not answer");
            }
            if error.kind() == ErrorKind::UnexpectedEof {
                return io::Error::new(ErrorKind::UnexpectedEof, "the other process has ended");
            }
            error
        })
    }

    fn receive_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        receive_descriptors(count, || receive_part(&self.stream, &mut [0]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    fn pair() -> (Wire, Wire) {
        let (a, b) = UnixStream::pair().unwrap();
        (Wire::new(a).unwrap(), Wire::new(b).unwrap())
    }

    #[test]
    fn descriptors_arrive_in_their_order_between_messages() {
        let (mut a, mut b) = pair();
        let files: Vec<File> = (0..600).map(|_| tempfile()).collect();
        for (number, file) in files.iter().enumerate() {
            let mut file = file;
            file.write_all(number.to_string().as_bytes()).unwrap();
        }
        let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                a.send(&Step::Pause).unwrap();
                a.send_descriptors(&borrowed).unwrap();
                a.send(&Step::Commit).unwrap();
            });
            b.expect(Step::Pause).unwrap();
            let received = b.receive_descriptors(600).unwrap();
            for (number, file) in received.into_iter().enumerate() {
                let mut text = [0; 8];
                let len = rustix::io::pread(&file, &mut text, 0).unwrap();
                assert_eq!(text[..len], *number.to_string().as_bytes());
            }
            b.expect(Step::Commit).unwrap();
        });
    }

    #[test]
    fn what_is_not_expected_is_refused() {
        let (mut a, mut b) = pair();
        a.send(&Step::Commit).unwrap();
        assert!(b.expect(Step::Pause).unwrap_err().to_string().contains("Commit instead of Pause"));
        a.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(b.expect(Step::Commit).unwrap_err().kind(), ErrorKind::InvalidData);
        let (mut a, mut b) = pair();
        a.stream.write_all(&[3, 0, 0, 0, b'n', b'o', b'!']).unwrap();
        assert!(b.expect(Step::Commit).unwrap_err().to_string().contains("no state"));
        // Bytes in place of descriptors, and a closed connection.
        a.stream.write_all(&[1]).unwrap();
        assert!(b.receive_descriptors(1).is_err());
        drop(a);
        assert_eq!(b.receive_descriptors(1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(b.receive::<Step>().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_process_that_is_gone_is_noticed_without_a_message() {
        let (mut a, b) = pair();
        assert!(!b.is_gone());
        a.send(&Step::Commit).unwrap();
        assert!(!b.is_gone());
        drop(a);
        assert!(b.is_gone());
    }

    fn tempfile() -> File {
        rustix::fs::memfd_create("turnpike-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
    }
}
