//! A connection to a server: a stream of bytes, or a DTLS session.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dtls::DtlsSession;
use crate::stream::Stream;

/// Room for one read, in bytes.
pub const RECEIVE_BYTES: usize = 64 * 1024;

/// A connection shared by a thread that sends and one that receives.
#[derive(Clone, Debug)]
pub struct SharedConnection(Arc<Mutex<Connection>>);

impl SharedConnection {
    pub(crate) fn new(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// Exclusive access. After a panic of another thread a partial message may be queued, which the
    /// server then rejects.
    pub fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection.
#[derive(Debug)]
pub enum Connection {
    /// Messages one behind the other, plain or in TLS.
    Stream(Stream),
    /// A datagram for each message.
    Dtls(DtlsSession),
}

impl Connection {
    /// The local address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Stream(stream) => stream.local_addr(),
            Self::Dtls(session) => session.local_addr(),
        }
    }

    /// Returns `true` where each message is a datagram of its own.
    #[must_use]
    pub const fn sends_datagrams(&self) -> bool {
        matches!(self, Self::Dtls(_))
    }

    /// Sends `count` messages, padded as on a stream, and returns how many were sent: a stream
    /// takes all or none.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn offer(&mut self, messages: &[u8], count: u64) -> io::Result<u64> {
        match self {
            Self::Stream(stream) => Ok(if stream.offer(messages)? { count } else { 0 }),
            Self::Dtls(session) => session.offer(messages),
        }
    }

    /// Sends or queues a message; `false` when the queue is full.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Stream(stream) => stream.send(message),
            Self::Dtls(session) => session.send(message).map(|()| true),
        }
    }

    /// Reads once and passes whole messages to `each`, without their padding; `false` when nothing
    /// was there. Handshake messages are answered.
    ///
    /// # Errors
    /// The connection is broken or ended; the bytes are not of its protocol.
    pub fn receive(&mut self, buffer: &mut [u8], each: impl FnMut(&[u8])) -> io::Result<bool> {
        match self {
            Self::Stream(stream) => stream.receive(buffer, each),
            Self::Dtls(session) => session.receive(buffer, each),
        }
    }

    /// [Receives](Self::receive) until nothing is there.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_all(
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
            Self::Dtls(session) => session.as_fd(),
        }
    }
}
