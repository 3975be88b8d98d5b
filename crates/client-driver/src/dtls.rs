//! A DTLS session with the server: each message is a record, and each record a datagram, as media
//! is sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::UdpSocket;
use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, Ssl, SslContext, SslStream};
use stun_wire::{Cut, next_message_rfc5766};

/// Bytes of a record's header, the last two of which are the length of the rest (RFC 6347 §4.1).
const RECORD_HEADER: usize = 13;

/// The longest datagram of a handshake: the IPv6 minimum MTU (RFC 8200 §5) less headers.
const HANDSHAKE_DATAGRAM: u32 = 1200;

/// Begins a DTLS session as a client, with the first handshake step, over these datagrams.
///
/// # Errors
/// The OpenSSL of this host lacks something that the context asks for.
pub fn begin<S: Read + Write>(context: &SslContext, datagrams: S) -> io::Result<SslStream<S>> {
    let begun = || {
        let mut ssl = Ssl::new(context)?;
        ssl.set_mtu(HANDSHAKE_DATAGRAM)?;
        ssl.set_connect_state();
        SslStream::new(ssl, datagrams)
    };
    begun().map_err(|error: ErrorStack| io::Error::other(format!("OpenSSL: {error}")))
}

/// One session.
pub struct DtlsSession {
    tls: SslStream<Datagrams>,
    /// The last message before the end of the handshake: a client has one request in flight.
    queued: Vec<u8>,
}

impl DtlsSession {
    /// A session whose handshake begins with the first message.
    pub(crate) fn new(socket: UdpSocket, context: &SslContext) -> io::Result<Self> {
        let datagrams = Datagrams { socket, records: Vec::new(), read: 0, refused: 0 };
        Ok(Self { tls: begin(context, datagrams)?, queued: Vec::new() })
    }

    /// The local address.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.tls.get_ref().socket.local_addr()
    }

    /// Sends messages that are padded as on a stream, one by one, and returns how many the kernel
    /// took.
    pub(crate) fn offer(&mut self, mut messages: &[u8]) -> io::Result<u64> {
        let (mut sent, refused) = (0, self.tls.get_ref().refused);
        while let Cut::Message { len, padded_len } = next_message_rfc5766(messages) {
            self.tls.ssl_write(&messages[..len]).map_err(|error| broken(&error))?;
            sent += 1;
            messages = &messages[padded_len..];
        }
        Ok(sent - (self.tls.get_ref().refused - refused))
    }

    /// Sends a message, if need be after the handshake. A client's retransmission also retransmits
    /// the lost flight of the handshake.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.queued.clear();
        self.queued.extend_from_slice(message);
        match self.tls.do_handshake() {
            Ok(()) => self.send_queued(),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(()),
            Err(error) => Err(broken(&error)),
        }
    }

    fn send_queued(&mut self) -> io::Result<()> {
        if !self.queued.is_empty() && self.tls.ssl().is_init_finished() {
            self.tls.ssl_write(&self.queued).map_err(|error| broken(&error))?;
            self.queued.clear();
        }
        Ok(())
    }

    /// Receives one datagram, or several that the kernel has merged, and passes its messages to
    /// `each`; `false` when nothing was there.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        if !self.tls.ssl().is_init_finished() {
            self.check_unreachable()?;
        }
        let datagrams = self.tls.get_mut();
        let Some(len) = datagrams.socket.recv(buffer)? else { return Ok(false) };
        datagrams.records.clear();
        datagrams.records.extend_from_slice(&buffer[..len]);
        datagrams.read = 0;
        loop {
            match self.tls.ssl_read(buffer) {
                Ok(len) => each(&buffer[..len]),
                Err(error) if error.code() == ErrorCode::WANT_READ => break,
                Err(error) => return Err(broken(&error)),
            }
        }
        self.send_queued()?;
        Ok(true)
    }

    /// ICMP errors during the handshake. Later ones are about lost packets.
    fn check_unreachable(&self) -> io::Result<()> {
        let mut unreachable = None;
        let note = |error: linux_net::SocketError| unreachable = error.icmp.map(|_| error.errno);
        self.tls.get_ref().socket.recv_errors(note)?;
        unreachable.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

impl Drop for DtlsSession {
    fn drop(&mut self) {
        // The alert may be lost: the server has its timeouts.
        let _ = self.tls.shutdown();
    }
}

impl AsFd for DtlsSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tls.get_ref().socket.as_fd()
    }
}

impl fmt::Debug for DtlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsSession").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

fn broken(error: &Error) -> io::Error {
    if error.code() == ErrorCode::ZERO_RETURN {
        let message = "the server closed the DTLS session";
        return io::Error::new(io::ErrorKind::UnexpectedEof, message);
    }
    io::Error::other(format!("DTLS: {error}"))
}

/// The datagrams of a session, which OpenSSL reads a record at a time: the kernel may merge
/// several.
#[derive(Debug)]
struct Datagrams {
    socket: UdpSocket,
    /// The last datagrams received.
    records: Vec<u8>,
    /// Bytes of them that were read.
    read: usize,
    /// Datagrams that the kernel refused: lost, as on the network.
    refused: u64,
}

impl Read for Datagrams {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let rest = &self.records[self.read..];
        let Some(&[high, low]) = rest.get(RECORD_HEADER - 2..RECORD_HEADER) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let record = RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
        let record = &rest[..record.min(rest.len())];
        self.read += record.len();
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
