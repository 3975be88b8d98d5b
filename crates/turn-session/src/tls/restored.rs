//! TLS connection of another process, continued with the keys from the exported state.
//!
//! The keys cannot change, because the state lacks the secrets that the next keys derive from:
//! rustls does not export these. A client that updates its keys (KeyUpdate, RFC 8446 §4.6.3)
//! terminates the connection.

use std::io;

use rustls::{AlertDescription, Error, InvalidMessage, PeerMisbehaved};

use super::content::{AlertLevel, Content};
use super::error::{Reason, TlsError};
use super::framing::Header;
use super::record::{CIPHERTEXT_BYTES, Direction, Kind, PLAINTEXT_MAX};
use super::state::{TlsState, Version};

/// Maximum number of consecutive empty data records, as in rustls.
const EMPTY_MAX: u8 = 32;

/// Maximum number of warning alerts from the client, as in rustls.
const WARNINGS_MAX: u8 = 4;

/// Maximum number of declined requests for another handshake, as in rustls.
const RENEGOTIATIONS_MAX: u8 = 1;

/// The server's side of a connection with known keys.
pub(super) struct Restored {
    version: Version,
    reading: Direction,
    writing: Direction,
    server_name: Option<String>,
    unread: Vec<u8>,
    unwritten: Vec<u8>,
    /// Number of consecutive empty data records.
    empty: u8,
    warnings: u8,
    renegotiations: u8,
    /// True after close_notify from the client.
    has_ended: bool,
    /// True after an alert that closed the direction to the client. No more records are sent.
    is_closed: bool,
}

impl Restored {
    /// Resumes a connection. Returns `None` if the state is invalid. The caller keeps the untaken
    /// bytes of the state.
    pub(super) fn new(state: TlsState) -> Option<Self> {
        if !state.is_plausible() {
            return None;
        }
        let TlsState { version, reading, writing, server_name, unread, unwritten, .. } = state;
        Some(Self {
            version,
            reading: Direction::new(version, reading)?,
            writing: Direction::new(version, writing)?,
            server_name,
            unread,
            unwritten,
            empty: 0,
            warnings: 0,
            renegotiations: 0,
            has_ended: state.has_ended,
            is_closed: state.is_closed,
        })
    }

    /// Exports the state, with these untaken bytes.
    pub(super) fn into_state(self, untaken: Vec<u8>) -> TlsState {
        TlsState {
            version: self.version,
            reading: self.reading.into_state(),
            writing: self.writing.into_state(),
            server_name: self.server_name,
            untaken,
            unread: self.unread,
            unwritten: self.unwritten,
            has_ended: self.has_ended,
            is_closed: self.is_closed,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Decrypts complete records into `room`, and retains plaintext that does not fit. Returns the
    /// number of bytes written.
    pub(super) fn take(&mut self, records: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let taken = self.take_records(records, room);
        if let Err(error) = &taken {
            let alert = error.alert();
            let is_end = alert == AlertDescription::CloseNotify;
            self.send_alert(if is_end { AlertLevel::Warning } else { AlertLevel::Fatal }, alert);
        }
        taken
    }

    fn take_records(&mut self, mut records: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let mut len = self.read(room);
        if self.unread.len() > PLAINTEXT_MAX {
            return Err(TlsError::no_room());
        }
        // All data after close_notify is ignored (RFC 8446 §6.1).
        while !records.is_empty() && !self.has_ended {
            if self.writing.is_exhausted() {
                return Err(TlsError(Reason::KeysExhausted));
            }
            let (record, rest) = records.split_at(record_len(records)?);
            len += self.take_record(record, &mut room[len..])?;
            records = rest;
        }
        Ok(len + self.read(&mut room[len..]))
    }

    fn take_record(&mut self, record: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let sealed = self.reading.parse(record)?;
        // Decrypts directly into `room`, unless earlier plaintext is waiting.
        if self.unread.is_empty() && room.len() >= sealed.len() {
            let (kind, len) = self.reading.open(&sealed, room)?;
            let content = Content::read(self.version, kind, &room[..len])?;
            return self.take_content(content);
        }
        let start = self.unread.len();
        self.unread.resize(start + sealed.len(), 0);
        let opened = self.reading.open(&sealed, &mut self.unread[start..]);
        let content = opened.map_err(TlsError::from).and_then(|(kind, len)| {
            Content::read(self.version, kind, &self.unread[start..start + len])
        });
        let taken = content.and_then(|content| self.take_content(content));
        // Only application data may be read by the caller.
        self.unread.truncate(start + taken.as_ref().map_or(0, |len| *len));
        taken.map(|_| 0)
    }

    /// Processes the content of a record, and returns the length of application data.
    fn take_content(&mut self, content: Content) -> Result<usize, TlsError> {
        let is_empty = content == Content::Data(0);
        if is_empty && self.empty == EMPTY_MAX {
            return Err(Error::from(PeerMisbehaved::TooManyEmptyFragments).into());
        }
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        match content {
            Content::Data(len) => return Ok(len),
            Content::Alert(level, description) => self.take_alert(level, description)?,
            Content::Renegotiation => self.decline_renegotiation()?,
        }
        Ok(0)
    }

    /// Processes an alert (RFC 8446 §6, RFC 5246 §7.2).
    fn take_alert(
        &mut self,
        level: AlertLevel,
        description: AlertDescription,
    ) -> Result<(), TlsError> {
        if description == AlertDescription::CloseNotify {
            self.has_ended = true;
            return Ok(());
        }
        let is_warning = match self.version {
            Version::V12 => level == AlertLevel::Warning,
            Version::V13 => description == AlertDescription::UserCanceled,
        };
        if !is_warning {
            // The client accepts no more records, not even an alert.
            self.is_closed = true;
            return Err(Error::AlertReceived(description).into());
        }
        if self.warnings == WARNINGS_MAX {
            return Err(Error::from(PeerMisbehaved::TooManyWarningAlertsReceived).into());
        }
        self.warnings += 1;
        Ok(())
    }

    /// Declines another handshake. The client may continue without it (RFC 5246 §7.2.2).
    fn decline_renegotiation(&mut self) -> Result<(), TlsError> {
        if self.renegotiations == RENEGOTIATIONS_MAX {
            return Err(Error::from(PeerMisbehaved::TooManyRenegotiationRequests).into());
        }
        self.renegotiations += 1;
        self.send_alert(AlertLevel::Warning, AlertDescription::NoRenegotiation);
        Ok(())
    }

    /// Moves plaintext to `room`, up to its length, and returns the number of bytes.
    pub(super) fn read(&mut self, room: &mut [u8]) -> usize {
        let len = self.unread.len().min(room.len());
        room[..len].copy_from_slice(&self.unread[..len]);
        remove_front(&mut self.unread, len);
        len
    }

    /// Encrypts plaintext up to the buffer limit, and returns the number of plaintext bytes
    /// accepted. Accepts nothing after an alert that closed the connection.
    pub(super) fn write(&mut self, plaintext: &[u8]) -> usize {
        let mut taken = 0;
        while taken < plaintext.len() && !self.is_closed {
            if self.writing.is_exhausted() {
                self.end();
                break;
            }
            let room = CIPHERTEXT_BYTES.saturating_sub(self.unwritten.len());
            let len = (plaintext.len() - taken).min(room).min(PLAINTEXT_MAX);
            if len == 0 {
                break;
            }
            let piece = &plaintext[taken..taken + len];
            self.writing.seal(Kind::Data, piece, &mut self.unwritten);
            taken += len;
        }
        taken
    }

    pub(super) const fn wants_write(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Writes ciphertext.
    pub(super) fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        let written = writer.write(&self.unwritten)?;
        remove_front(&mut self.unwritten, written);
        Ok(written)
    }

    /// Queues close_notify.
    pub(super) fn end(&mut self) {
        self.send_alert(AlertLevel::Warning, AlertDescription::CloseNotify);
    }

    fn send_alert(&mut self, level: AlertLevel, description: AlertDescription) {
        if self.is_closed {
            return;
        }
        self.is_closed = description != AlertDescription::NoRenegotiation;
        let alert = [level as u8, description.into()];
        self.writing.seal(Kind::Alert, &alert, &mut self.unwritten);
    }
}

/// Returns the length of the complete record at the start of `records`.
fn record_len(records: &[u8]) -> Result<usize, Error> {
    match Header::of(records) {
        Header::Record(len) if len <= records.len() => Ok(len),
        Header::TooLong => Err(Error::PeerSentOversizedRecord),
        Header::Record(_) | Header::Incomplete | Header::Foreign => {
            Err(InvalidMessage::InvalidContentType.into())
        }
    }
}

/// Removes the first `len` bytes, and frees the memory if none remain: idle connections hold no
/// memory.
fn remove_front(bytes: &mut Vec<u8>, len: usize) {
    if len == bytes.len() {
        *bytes = Vec::new();
    } else {
        bytes.drain(..len);
    }
}

#[cfg(test)]
mod tests;
