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

/// The longest record, as plaintext and with all that is around it (RFC 8446 §5.2), and some more.
const RECORD_BYTES: usize = 17 << 10;

/// Least number of bytes to read at once, regardless of room: the excess plaintext waits in the TLS
/// state.
const PIECE_BYTES: usize = 4096;

/// Most records that one [`Tls::take`] decrypts after the handshake. Each costs a microsecond, and
/// a KeyUpdate six, however short it is: 64 KiB of them would take 15 milliseconds.
pub const RECORDS_PER_TAKE: usize = 64;

/// The server's end of a TLS connection. After the handshake it can move to another process: it
/// [leaves](Self::leave) this one and is [resumed](Self::resume) there. Clients notice nothing.
pub struct Tls {
    layer: Layer,
    untaken: Untaken,
    /// Number of records of which the caller was not told.
    taken: usize,
    /// The remote has sent close_notify.
    has_ended: bool,
    /// Error that has ended the connection. Boxed for the others, which have none.
    failure: Option<Box<TlsError>>,
}

/// Record layer of a connection.
enum Layer {
    /// Of a handshake in this process.
    Negotiated(Box<Negotiated>),
    /// With the keys of another process.
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
    /// A new connection before the handshake.
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

    /// Goes on with a connection that has left another process, or this one. See [`TlsState`] for
    /// who may.
    ///
    /// Its keys cannot change any more, as their secret does not come along. A client that updates
    /// its keys (KeyUpdate, RFC 8446 §4.6.3), which few do, gets an alert, and [`take`](Self::take)
    /// fails. So it does when the server's keys have protected as many records as they may: 16
    /// million with AES-GCM, counted from the handshake or the last KeyUpdate.
    ///
    /// # Errors
    /// The state is none of a connection.
    pub fn resume(mut state: TlsState) -> Result<Self, TlsError> {
        let untaken = Untaken::restore(std::mem::take(&mut state.untaken));
        let has_ended = state.has_ended;
        let restored = untaken.zip(Restored::new(state));
        let (untaken, layer) = restored.ok_or(TlsError(Reason::ForeignState))?;
        let resumed = Self::with(Layer::Restored(Box::new(layer)), untaken);
        Ok(Self { has_ended, ..resumed })
    }

    /// Returns true if it can [leave](Self::leave): its handshake is complete, and it has not
    /// failed.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        let may_leave = match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.may_leave(),
            Layer::Restored(_) => true,
        };
        // rustls may hold bytes that are no record.
        may_leave && self.failure.is_none() && !self.untaken.is_foreign()
    }

    /// Takes the connection apart for another process, with all bytes that were not yet read or
    /// written. This value is gone then: nothing is sent here any more, so that no record has the
    /// sequence number of another one.
    ///
    /// # Errors
    /// Returns the connection as it was: it [may not leave](Self::may_leave).
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

    /// Most bytes to read from the network when there is `room` for plaintext, so that
    /// [`take`](Self::take) can write all of it.
    #[must_use]
    pub const fn most(room: usize) -> usize {
        // If most of a record came before, all of its plaintext may be returned now.
        match room.checked_sub(RECORD_BYTES) {
            Some(rest) if rest > PIECE_BYTES => rest,
            _ => PIECE_BYTES,
        }
    }

    /// Decrypts bytes from the network, and writes the plaintext into `room`, as far as it fits;
    /// [`read`](Self::read) returns the rest. Returns the number of bytes written.
    ///
    /// After the handshake it decrypts [`RECORDS_PER_TAKE`] records at most, and retains further
    /// bytes. While [`has_records`](Self::has_records) returns true, the next calls get no
    /// ciphertext.
    ///
    /// # Errors
    /// Not TLS, no common parameters, or for a [resumed](Self::resume) connection keys that have to
    /// change. [Write](Self::write_to) the alert before closing the connection: all that comes
    /// later fails as well.
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

    /// Returns true if records are retained, which the next [`take`](Self::take) decrypts.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.failure.is_none() && self.untaken.has_record()
    }

    /// Returns the number of records decrypted since the last call, without the handshake's.
    pub const fn records_taken(&mut self) -> usize {
        std::mem::replace(&mut self.taken, 0)
    }

    fn take_pieces(&mut self, mut bytes: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        // The time of a handshake is measured by the caller.
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

    /// Reads decrypted plaintext, as far as there is room, and returns its length.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.read(room),
            Layer::Restored(restored) => restored.read(room),
        }
    }

    /// Encrypts as much as there is room for, and returns the number of bytes.
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

    /// True if there are bytes to be written.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.wants_write(),
            Layer::Restored(restored) => restored.wants_write(),
        }
    }

    /// Writes encrypted bytes.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.write_to(writer),
            Layer::Restored(restored) => restored.write_to(writer),
        }
    }

    /// Sends close_notify.
    pub fn end(&mut self) {
        match &mut self.layer {
            Layer::Negotiated(negotiated) => negotiated.end(),
            Layer::Restored(restored) => restored.end(),
        }
    }

    /// True if the remote has sent close_notify (RFC 8446 §6.1), after all bytes that can be
    /// [read](Self::read). The connection below may stay open.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The name that the client asked for (SNI, RFC 6066 §3), in lower case; none before its first
    /// flight was read.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.server_name(),
            Layer::Restored(restored) => restored.server_name(),
        }
    }

    /// True if the handshake is complete.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        match &self.layer {
            Layer::Negotiated(negotiated) => negotiated.is_agreed(),
            Layer::Restored(_) => true,
        }
    }
}
