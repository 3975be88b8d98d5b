//! A way between two processes: one end of a pair of Unix sockets.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use linux_net::{message_pair, set_send_buffer};

use super::ConduitIo;
use crate::limits::CONDUIT_BUFFER;

/// One end of a pair of Unix sockets. The kernel bounds what waits in it by the sender's buffer.
#[derive(Debug)]
pub struct Conduit(UnixDatagram);

impl Conduit {
    /// Both ends; the second one sends.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let [one, other] = message_pair()?.map(UnixDatagram::from);
        set_send_buffer(other.as_fd(), CONDUIT_BUFFER)?;
        Ok((Self(one), Self(other)))
    }

    /// An end that another process has made.
    ///
    /// # Errors
    /// It is no Unix socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let socket = UnixDatagram::from(fd);
        // Fails for sockets of other families.
        socket.local_addr()?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl AsFd for Conduit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ConduitIo for Conduit {
    fn send(&self, message: &[u8]) -> io::Result<bool> {
        match self.0.send(message) {
            Ok(_) => Ok(true),
            Err(error) if is_gone(&error) => Err(error),
            Err(_) => Ok(false),
        }
    }

    fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.recv(room) {
            // No message is empty.
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn copy(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

/// The other end is closed. All other errors are about one message.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_an_end_that_is_gone_is_an_error() {
        let (one, other) = Conduit::pair().unwrap();
        let mut room = [0; 100];
        assert_eq!(other.receive(&mut room).unwrap(), None);
        for message in [&b"first"[..], b"second"] {
            assert!(one.send(message).unwrap());
        }
        for message in [&b"first"[..], b"second"] {
            let len = other.receive(&mut room).unwrap().unwrap();
            assert_eq!(&room[..len], message);
        }
        // What the other one has sent before its end comes first.
        assert!(other.send(b"last").unwrap());
        drop(other);
        assert!(one.send(b"nobody").is_err());
        assert_eq!(one.receive(&mut room).unwrap(), Some(4));
        assert!(one.receive(&mut room).is_err());
    }

    #[test]
    fn a_full_one_takes_no_more_and_none_is_lost_of_what_it_took() {
        let (one, other) = Conduit::pair().unwrap();
        let taken = (0..100_000).take_while(|_| one.send(&[7; 1000]).unwrap()).count();
        assert!((50..100_000).contains(&taken), "{taken}");
        assert!(!one.send(&[7; 60_000]).unwrap(), "it is not gone");
        let mut room = [0; 2000];
        let came = std::iter::from_fn(|| other.receive(&mut room).unwrap()).count();
        assert_eq!(came, taken);
        assert!(one.send(&[7; 1000]).unwrap());
    }

    #[test]
    fn a_copy_is_the_same_end() {
        let (one, other) = Conduit::pair().unwrap();
        let copy = Conduit::from_fd(OwnedFd::from(one.copy().unwrap().0)).unwrap();
        drop(one);
        assert!(copy.send(b"x").unwrap());
        assert_eq!(other.receive(&mut [0; 10]).unwrap(), Some(1));
    }

    #[test]
    fn a_socket_of_another_family_is_none() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(Conduit::from_fd(socket.into()).is_err());
    }
}
