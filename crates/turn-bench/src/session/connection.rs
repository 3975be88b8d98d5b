//! What has a state of its own between a client and its server: a stream of bytes, or a DTLS association.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::association::Association;
use super::stream::Stream;

/// Room for what one read brings.
pub(crate) const RECEIVE_BYTES: usize = 64 * 1024;

/// One connection, of a thread that sends and of one that receives.
#[derive(Clone, Debug)]
pub struct SharedConnection(Arc<Mutex<Connection>>);

impl SharedConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// For one thread alone. Whoever panicked with it may have left half a message behind, which the
    /// server then complains of.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Connection {
    /// Messages one behind the other, as they are or in TLS.
    Stream(Stream),
    /// A datagram for each message.
    Association(Association),
}

impl Connection {
    /// The address it is connected from.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Stream(stream) => stream.local_addr(),
            Self::Association(association) => association.local_addr(),
        }
    }

    /// Whether each message is a datagram of its own.
    pub(crate) const fn sends_datagrams(&self) -> bool {
        matches!(self, Self::Association(_))
    }

    /// Sends so many messages, padded as on a stream, and returns how many of them went: a stream takes
    /// all or none.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn offer(&mut self, messages: &[u8], count: u64) -> io::Result<u64> {
        match self {
            Self::Stream(stream) => Ok(if stream.offer(messages)? { count } else { 0 }),
            Self::Association(association) => association.offer(messages),
        }
    }

    /// Sends a message now, or when the connection takes it; `false`: it does not, and will not.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Stream(stream) => stream.send(message),
            Self::Association(association) => association.send(message),
        }
    }

    /// Reads once and hands out whole messages, without their padding; `false` when nothing was
    /// there. What has to be said in answer (TLS, DTLS) is sent.
    ///
    /// # Errors
    /// The connection is broken or ended; what came is not what belongs there.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        match self {
            Self::Stream(stream) => stream.receive(buffer, each),
            Self::Association(association) => association.receive(buffer, each),
        }
    }

    /// [Receives](Self::receive) until nothing is there.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub(crate) fn receive_all(
        &mut self,
        buffer: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        while self.receive(buffer, &mut each)? {}
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Association(association) => association.as_fd(),
        }
    }
}
