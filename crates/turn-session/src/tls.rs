//! TLS 1.2 and 1.3 for a connection, as a value: ciphertext of the network in, plaintext out, and
//! the reverse.

mod config;
mod content;
mod error;
mod framing;
mod negotiated;
mod record;
mod restored;
mod state;

use std::fmt;
use std::io;

pub use config::{TlsConfig, https_config, tls_config};
use error::Reason;
pub use error::TlsError;
use framing::{Most, Untaken};
use negotiated::Negotiated;
use restored::Restored;
pub use state::TlsState;

/// Maximum length of a record in bytes with header and protection (RFC 8446 §5.2), plus a margin.
const RECORD_BYTES: usize = 17 << 10;

/// Minimum number of bytes per read from the network, regardless of free space. Excess plaintext
/// waits in the TLS state.
const PIECE_BYTES: usize = 4096;

/// Maximum number of records that one [`Tls::take`] decrypts after the handshake. Each record costs
/// a microsecond, and a KeyUpdate six, however short: 64 KiB of KeyUpdates would take 15
/// milliseconds.
pub const RECORDS_PER_TAKE: usize = 64;

/// The server's side of a TLS connection.
///
/// After the handshake, the connection can move to another process: [`leave`](Self::leave) exports
/// the state, and [`resume`](Self::resume) continues from it. Clients do not notice.
pub struct Tls {
    layer: Layer,
    untaken: Untaken,
    /// Number of decrypted records that [`records_taken`](Self::records_taken) has not yet
    /// returned.
    taken: usize,
    /// True after close_notify from the remote.
    has_ended: bool,
    /// Error that has terminated the connection. Boxed, because most connections have none.
    failure: Option<Box<TlsError>>,
}

/// Record layer of a connection.
enum Layer {
    /// Connection with a handshake in this process.
    Negotiated(Box<Negotiated>),
    /// Connection with keys from another process.
    Restored(Box<Restored>),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer: _, untaken: _, taken: _, has_ended, failure } = self;
        f.debug_struct("Tls")
            .field("has_ended", has_ended)
            .field("failure", failure)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates a connection before the handshake.
    ///
    /// # Errors
    /// The configuration is not valid for a server.
    pub fn new(config: &TlsConfig) -> Result<Self, TlsError> {
        let layer = Layer::Negotiated(Box::new(Negotiated::new(&config.config)?));
        Ok(Self::with(layer, Untaken::default()))
    }

    const fn with(layer: Layer, untaken: Untaken) -> Self {
        Self { layer, untaken, taken: 0, has_ended: false, failure: None }
    }

    /// Continues a connection exported by another process, or by this process. See [`TlsState`] for
    /// the condition.
    ///
    /// The keys of a resumed connection cannot change, because [`TlsState`] does not contain the
    /// secret they derive from. So [`take`](Self::take) fails, after an alert to the client, in two
    /// cases:
    ///
    /// - The client updates its keys (KeyUpdate, RFC 8446 §4.6.3), which few clients do.
    /// - The server's keys have protected the maximum number of records: 16 million with AES-GCM,
    ///   counted from the handshake or the last KeyUpdate.
    ///
    /// # Errors
    /// The state does not describe a valid connection.
    pub fn resume(mut state: TlsState) -> Result<Self, TlsError> {
        let untaken = Untaken::restore(std::mem::take(&mut state.untaken));
        let has_ended = state.has_ended;
        let restored = untaken.zip(Restored::new(state));
        let (untaken, layer) = restored.ok_or(TlsError(Reason::ForeignState))?;
        let resumed = Self::with(Layer::Restored(Box::new(layer)), untaken);
        Ok(Self { has_ended, ..resumed })
    }

    /// Returns true if the connection can [leave](Self::leave): the handshake is complete, and
    /// there was no error.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        let may_leave = match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.may_leave(),
            Layer::Restored(_) => true,
        };
        // rustls may have buffered bytes that are not a TLS record.
        may_leave && self.failure.is_none() && !self.untaken.is_foreign()
    }

    /// Exports the connection for another process, with all bytes not yet read or written. This
    /// consumes the value, so nothing more is sent here, and no sequence number is used twice.
    ///
    /// # Errors
    /// Returns the unchanged connection if it [may not leave](Self::may_leave).
    pub fn leave(self) -> Result<TlsState, Self> {
        if !self.may_leave() {
            return Err(self);
        }
        let untaken = self.untaken.into_bytes();
        Ok(match self.layer {
            Layer::Negotiated(negotiated) => negotiated.into_state(untaken),
            Layer::Restored(restored) => restored.into_state(untaken),
        })
    }

    /// Returns the maximum number of bytes to read from the network when there is space for `room`
    /// bytes of plaintext. [`take`](Self::take) can then write all plaintext.
    #[must_use]
    pub const fn most(room: usize) -> usize {
        // If most of a record has already arrived, its complete plaintext may be returned now.
        match room.checked_sub(RECORD_BYTES) {
            Some(rest) if rest > PIECE_BYTES => rest,
            _ => PIECE_BYTES,
        }
    }

    /// Decrypts bytes from the network into `room`, and returns the number of bytes written. If the
    /// plaintext does not fit, [`read`](Self::read) returns the remainder.
    ///
    /// After the handshake, each call decrypts at most [`RECORDS_PER_TAKE`] records, and retains
    /// further bytes. While [`has_records`](Self::has_records) returns true, call this method
    /// without ciphertext.
    ///
    /// # Errors
    /// The bytes are not TLS, there are no common parameters, or the keys of a
    /// [resumed](Self::resume) connection must change. [Write](Self::write_to) the alert before
    /// closing the connection. All further ciphertext fails as well.
    pub fn take(&mut self, ciphertext: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        match &self.failure {
            Some(failure) if !ciphertext.is_empty() => return Err(TlsError::clone(failure)),
            Some(_) | None => {}
        }
        let taken = self.take_pieces(ciphertext, room);
        if let Err(error) = &taken {
            self.failure = Some(Box::new(error.clone()));
        }
        taken
    }

    /// Returns true if records are retained for the next [`take`](Self::take) to decrypt.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.failure.is_none() && self.untaken.has_record()
    }

    /// Returns the number of records decrypted since the last call, without those of the handshake.
    pub const fn records_taken(&mut self) -> usize {
        std::mem::replace(&mut self.taken, 0)
    }

    fn take_pieces(&mut self, mut bytes: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        // The caller measures the time of a handshake, so the number of records is unlimited.
        let records = if self.is_agreed() { RECORDS_PER_TAKE } else { usize::MAX };
        let mut most = Most { records, kept_bytes: Self::most(room.len()) };
        let len = self.take_most(&mut bytes, room, &mut most);
        if records == RECORDS_PER_TAKE {
            self.taken += records - most.records;
        }
        len
    }

    fn take_most(
        &mut self,
        bytes: &mut &[u8],
        room: &mut [u8],
        most: &mut Most,
    ) -> Result<usize, TlsError> {
        let mut len = 0;
        while let Some(piece) = self.untaken.next(bytes, most) {
            let (records, room) = (piece.bytes(), &mut room[len..]);
            len += match &mut self.layer {
                Layer::Negotiated(negotiated) => negotiated.take(records, room)?,
                Layer::Restored(restored) => restored.take(records, room)?,
            };
        }
        self.has_ended = match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.has_ended(),
            Layer::Restored(restored) => restored.has_ended(),
        };
        Ok(len)
    }

    /// Reads decrypted plaintext into `room`, up to its length, and returns the number of bytes.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.read(room),
            Layer::Restored(restored) => restored.read(room),
        }
    }

    /// Encrypts plaintext up to the free space of the ciphertext buffer, and returns the number of
    /// plaintext bytes accepted.
    pub fn write(&mut self, plaintext: [&[u8]; 2]) -> usize {
        let mut taken = 0;
        for piece in plaintext {
            let len = match &mut self.layer {
                Layer::Negotiated(negotiated) => negotiated.write(piece),
                Layer::Restored(restored) => restored.write(piece),
            };
            taken += len;
            if len < piece.len() {
                break;
            }
        }
        taken
    }

    /// Returns true if encrypted bytes are waiting to be written.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.wants_write(),
            Layer::Restored(restored) => restored.wants_write(),
        }
    }

    /// Writes encrypted bytes to `writer`, and returns the number of bytes written.
    ///
    /// # Errors
    /// The writer has failed.
    pub fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.write_to(writer),
            Layer::Restored(restored) => restored.write_to(writer),
        }
    }

    /// Queues close_notify.
    pub fn end(&mut self) {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.end(),
            Layer::Restored(restored) => restored.end(),
        }
    }

    /// Returns true if the remote has sent close_notify (RFC 8446 §6.1), after all bytes that can
    /// be [read](Self::read). The underlying connection may remain open.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the server name requested by the client (SNI, RFC 6066 §3), in lower case. `None` if
    /// the client sent no name, or before its first flight was read.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.server_name(),
            Layer::Restored(restored) => restored.server_name(),
        }
    }

    /// Returns true if the handshake is complete.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.is_agreed(),
            Layer::Restored(_) => true,
        }
    }
}
