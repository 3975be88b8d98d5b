//! A DTLS association with the server: each message is a record, and each record a datagram, as media is
//! sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::UdpSocket;
use openssl::ssl::{Error, ErrorCode, SslStream};
use stun_wire::{Cut, next_message_rfc5766};

use super::dtls;

/// Bytes of a record's header, the last two of which are the length of what follows (RFC 6347 §4.1).
const RECORD_HEADER: usize = 13;

/// One association.
pub(crate) struct Association {
    tls: SslStream<Datagrams>,
    /// What was to be sent last before the handshake was done: a client asks for one thing at a time.
    waiting: Vec<u8>,
}

impl Association {
    /// One that begins with the first message.
    ///
    /// # Errors
    /// The OpenSSL of this host lacks something.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let datagrams = Datagrams { socket, records: Vec::new(), taken: 0, refused: 0 };
        Ok(Self { tls: dtls::begin(datagrams)?, waiting: Vec::new() })
    }

    /// The address it is connected from.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.tls.get_ref().socket.local_addr()
    }

    /// Sends messages that are padded as on a stream, each by itself, and returns how many of them the
    /// kernel took.
    ///
    /// # Errors
    /// The association is broken.
    pub(crate) fn offer(&mut self, mut messages: &[u8]) -> io::Result<u64> {
        let (mut sent, refused) = (0, self.tls.get_ref().refused);
        while let Cut::Message { len, padded_len } = next_message_rfc5766(messages) {
            self.tls.ssl_write(&messages[..len]).map_err(|error| broken(&error))?;
            sent += 1;
            messages = &messages[padded_len..];
        }
        Ok(sent - (self.tls.get_ref().refused - refused))
    }

    /// Sends a message, after the handshake if that is not done. A client that asks again has what was
    /// lost of the handshake sent again, too.
    ///
    /// # Errors
    /// The association is broken, or does not come about.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.waiting.clear();
        self.waiting.extend_from_slice(message);
        match self.tls.do_handshake() {
            Ok(()) => self.send_waiting().map(|()| true),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(true),
            Err(error) => Err(broken(&error)),
        }
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() && self.tls.ssl().is_init_finished() {
            self.tls.ssl_write(&self.waiting).map_err(|error| broken(&error))?;
            self.waiting.clear();
        }
        Ok(())
    }

    /// Takes one datagram, or several that the kernel has merged, and hands out what is in it; `false`
    /// when nothing was there.
    ///
    /// # Errors
    /// The association is broken or ended; nobody listens there.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        if !self.tls.ssl().is_init_finished() {
            self.hear_of_errors()?;
        }
        let datagrams = self.tls.get_mut();
        let Some(len) = datagrams.socket.recv(buffer)? else { return Ok(false) };
        datagrams.records.clear();
        datagrams.records.extend_from_slice(&buffer[..len]);
        datagrams.taken = 0;
        loop {
            match self.tls.ssl_read(buffer) {
                Ok(len) => each(&buffer[..len]),
                Err(error) if error.code() == ErrorCode::WANT_READ => break,
                Err(error) => return Err(broken(&error)),
            }
        }
        self.send_waiting()?;
        Ok(true)
    }

    /// What ICMP says while there is no association yet. Later it is of packets that are lost.
    fn hear_of_errors(&self) -> io::Result<()> {
        let mut unreachable = None;
        let told = |error: linux_net::SocketError| unreachable = error.icmp.map(|_| error.errno);
        self.tls.get_ref().socket.recv_errors(told)?;
        unreachable.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        // The server need not wait for more. Whether it hears it does not matter: it has its timeouts.
        let _ = self.tls.shutdown();
    }
}

impl AsFd for Association {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tls.get_ref().socket.as_fd()
    }
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Association").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

fn broken(error: &Error) -> io::Error {
    if error.code() == ErrorCode::ZERO_RETURN {
        return io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the association");
    }
    io::Error::other(format!("DTLS: {error}"))
}

/// What OpenSSL reads and writes: a record at a time, so that it does not matter how many came together.
#[derive(Debug)]
struct Datagrams {
    socket: UdpSocket,
    /// What came last.
    records: Vec<u8>,
    /// Bytes of it that were read.
    taken: usize,
    /// Datagrams that the kernel did not take. They are lost, as on the way.
    refused: u64,
}

impl Read for Datagrams {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let rest = &self.records[self.taken..];
        let Some(&[high, low]) = rest.get(RECORD_HEADER - 2..RECORD_HEADER) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let record = RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
        let record = &rest[..record.min(rest.len())];
        self.taken += record.len();
        let len = record.len().min(room.len());
        room[..len].copy_from_slice(&record[..len]);
        Ok(len)
    }
}

impl Write for Datagrams {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.refused += u64::from(self.socket.send(datagram).is_err());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
