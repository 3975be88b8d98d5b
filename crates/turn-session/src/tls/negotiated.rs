//! TLS connection of rustls, with a handshake in this process.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::ServerConnection;
use rustls::server::ServerConfig;

use super::error::TlsError;
use super::record::CIPHERTEXT_BYTES;
use super::state::{DirectionState, TlsState, Version};

/// The server's side of a rustls connection.
pub(super) struct Negotiated {
    connection: ServerConnection,
    /// True after close_notify from the client.
    has_ended: bool,
    /// True after close_notify was queued.
    is_closed: bool,
}

impl Negotiated {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Self, TlsError> {
        let mut connection = ServerConnection::new(Arc::clone(config))?;
        connection.set_buffer_limit(Some(CIPHERTEXT_BYTES));
        Ok(Self { connection, has_ended: false, is_closed: false })
    }

    /// Returns true if the handshake has established the keys.
    pub(super) fn may_leave(&self) -> bool {
        self.is_agreed() && self.version().is_some()
    }

    fn version(&self) -> Option<Version> {
        Version::of(self.connection.protocol_version())
    }

    /// Exports the state, with these untaken bytes. The connection must be [ready to
    /// leave](Self::may_leave), and must not have failed.
    pub(super) fn into_state(self, untaken: Vec<u8>) -> TlsState {
        let version = self.version().expect("that of the handshake");
        let Self { mut connection, has_ended, is_closed } = self;
        // rustls may queue the response to a KeyUpdate until the next write.
        drop(connection.writer().write(&[]));
        let (mut unread, mut unwritten) = (Vec::new(), Vec::new());
        // The stream has no end, so this fails after the last available byte.
        drop(connection.reader().read_to_end(&mut unread));
        while let Ok(1..) = connection.write_tls(&mut unwritten) {}
        let server_name = connection.server_name().map(str::to_owned);
        // Fails only during a handshake, after an error, and while ciphertext is unwritten.
        let secrets = connection.dangerous_extract_secrets().expect("a connection with keys");
        let direction = |secrets| DirectionState::of(secrets).expect("a cipher of `TlsRules`");
        let (reading, writing) = (direction(secrets.rx), direction(secrets.tx));
        TlsState {
            version,
            reading,
            writing,
            server_name,
            untaken,
            unread,
            unwritten,
            has_ended,
            is_closed,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn is_agreed(&self) -> bool {
        !self.connection.is_handshaking()
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.connection.server_name()
    }

    /// Decrypts records into `room`, and retains plaintext that does not fit. Returns the number of
    /// bytes written.
    pub(super) fn take(&mut self, mut records: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let mut len = 0;
        // All data after close_notify is ignored (RFC 8446 §6.1).
        while !records.is_empty() && !self.has_ended {
            // Fails only if too much plaintext is buffered, which `Tls::most` prevents.
            let taken = self.connection.read_tls(&mut records).unwrap_or(0);
            self.has_ended = self.connection.process_new_packets()?.peer_has_closed();
            len += self.read(&mut room[len..]);
            if taken == 0 {
                return Err(TlsError::no_room());
            }
        }
        Ok(len)
    }

    /// Moves plaintext to `room`, up to its length, and returns the number of bytes.
    pub(super) fn read(&mut self, room: &mut [u8]) -> usize {
        let mut len = 0;
        // An error means no data for now, or the end of the stream, which the network reports too.
        while let Ok(more @ 1..) = self.connection.reader().read(&mut room[len..]) {
            len += more;
        }
        len
    }

    /// Encrypts plaintext up to the buffer limit, and returns the number of plaintext bytes
    /// accepted.
    pub(super) fn write(&mut self, plaintext: &[u8]) -> usize {
        // Fails only after an error of the client, and may accept fewer bytes.
        self.connection.writer().write(plaintext).unwrap_or(0)
    }

    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes ciphertext.
    pub(super) fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        self.connection.write_tls(writer)
    }

    /// Queues close_notify.
    pub(super) fn end(&mut self) {
        self.is_closed = true;
        self.connection.send_close_notify();
    }
}
