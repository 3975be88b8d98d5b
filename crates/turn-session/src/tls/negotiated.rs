//! A connection whose handshake is done by this process: rustls.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::ServerConnection;
use rustls::server::ServerConfig;

use super::error::TlsError;
use super::record::CIPHERTEXT_BYTES;
use super::state::{DirectionState, TlsState, Version};

/// The server's end of a connection of rustls.
pub(super) struct Negotiated {
    connection: ServerConnection,
    /// The client has sent close_notify.
    has_ended: bool,
    /// close_notify was sent.
    is_closed: bool,
}

impl Negotiated {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Self, TlsError> {
        let mut connection = ServerConnection::new(Arc::clone(config))?;
        connection.set_buffer_limit(Some(CIPHERTEXT_BYTES));
        Ok(Self { connection, has_ended: false, is_closed: false })
    }

    /// Returns true if its keys are agreed.
    pub(super) fn may_leave(&self) -> bool {
        self.is_agreed() && self.version().is_some()
    }

    fn version(&self) -> Option<Version> {
        Version::of(self.connection.protocol_version())
    }

    /// Returns its state, with these untaken bytes. It [may leave](Self::may_leave), and has not
    /// failed.
    pub(super) fn into_state(self, untaken: Vec<u8>) -> TlsState {
        let version = self.version().expect("that of the handshake");
        let Self { mut connection, has_ended, is_closed } = self;
        // An answer to a KeyUpdate may wait for the next write.
        drop(connection.writer().write(&[]));
        let (mut unread, mut unwritten) = (Vec::new(), Vec::new());
        // It fails behind the last byte, as there is no end.
        drop(connection.reader().read_to_end(&mut unread));
        while let Ok(1..) = connection.write_tls(&mut unwritten) {}
        let server_name = connection.server_name().map(str::to_owned);
        // It fails during a handshake, after an error, and before all is written.
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

    /// Decrypts records into `room`, and keeps plaintext that does not fit. Returns the number of
    /// bytes written.
    pub(super) fn take(&mut self, mut records: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let mut len = 0;
        // Behind close_notify all is ignored (RFC 8446 §6.1).
        while !records.is_empty() && !self.has_ended {
            // It fails only where too much plaintext waits, of which `Tls::most` takes care.
            let taken = self.connection.read_tls(&mut records).unwrap_or(0);
            self.has_ended = self.connection.process_new_packets()?.peer_has_closed();
            len += self.read(&mut room[len..]);
            if taken == 0 {
                return Err(TlsError::no_room());
            }
        }
        Ok(len)
    }

    /// Moves plaintext to `room`, as far as it fits, and returns its length.
    pub(super) fn read(&mut self, room: &mut [u8]) -> usize {
        let mut len = 0;
        // Nothing now, or the end: the network reports it as well.
        while let Ok(more @ 1..) = self.connection.reader().read(&mut room[len..]) {
            len += more;
        }
        len
    }

    /// Encrypts as much as there is room for, and returns its length.
    pub(super) fn write(&mut self, plaintext: &[u8]) -> usize {
        // It fails only after an error of the client's; it may accept less.
        self.connection.writer().write(plaintext).unwrap_or(0)
    }

    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes ciphertext.
    pub(super) fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        self.connection.write_tls(writer)
    }

    /// Sends close_notify.
    pub(super) fn end(&mut self) {
        self.is_closed = true;
        self.connection.send_close_notify();
    }
}
