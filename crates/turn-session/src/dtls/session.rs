//! Established session: the record layer with known keys.

use std::fmt;

use super::engine::{DtlsEnd, Exchange, NotSent, Refused};
use super::limits::{ANSWERS_MAX, RECORDS_PER_DATAGRAM_MAX};
use super::protection::{EPOCH, KeysUsedUp, NotOpened, Opener, Sealer};
use super::record::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, CLIENT_HELLO, FATAL, FINISHED, HANDSHAKE, Record,
    take_record,
};
use super::state::{DtlsState, Reading, Writing};
use super::{PLAINTEXT_MAX, keys::DirectionKeys};

/// Levels and descriptions of alerts (RFC 5246 §7.2).
const WARNING: u8 = 1;
const CLOSE_NOTIFY: u8 = 0;
const NO_RENEGOTIATION: u8 = 100;

/// The server's side of an established session.
pub(super) struct Session {
    opener: Opener,
    sealer: Sealer,
    server_name: Option<Box<str>>,
    /// Last datagrams of the handshake, retained until the client proves their arrival.
    last_flight: Vec<Vec<u8>>,
    answers: u8,
    ended: Option<DtlsEnd>,
    /// True after close_notify was sent.
    is_closed: bool,
}

/// Effect of a record.
enum Effect {
    Data(usize),
    Nothing,
    End(DtlsEnd),
}

impl Session {
    /// Starts a session with the keys and the last datagrams of a handshake.
    pub(super) fn begin(
        reading: Reading,
        writing: (DirectionKeys, u64),
        server_name: Option<String>,
        last_flight: Vec<Vec<u8>>,
    ) -> Option<Self> {
        let (keys, next) = writing;
        let writing = Writing { keys, next, blocks: 0 };
        let answers = ANSWERS_MAX;
        Self::resume(DtlsState { reading, writing, server_name, last_flight, answers })
    }

    /// Resumes a session from a state. Returns `None` if the state is invalid.
    pub(super) fn resume(state: DtlsState) -> Option<Self> {
        let DtlsState { reading, writing, server_name, last_flight, answers } = state;
        if reading.keys.cipher != writing.keys.cipher {
            return None;
        }
        Some(Self {
            opener: Opener::new(reading)?,
            sealer: Sealer::new(writing)?,
            server_name: server_name.map(String::into_boxed_str),
            last_flight,
            answers,
            ended: None,
            is_closed: false,
        })
    }

    /// Returns the state of the session, or `None` after the end of the session.
    pub(super) fn state(&self) -> Option<DtlsState> {
        self.ended.is_none().then(|| DtlsState {
            reading: self.opener.state().clone(),
            writing: self.sealer.state().clone(),
            server_name: self.server_name.as_deref().map(str::to_owned),
            last_flight: self.last_flight.clone(),
            answers: self.answers,
        })
    }

    /// Returns an error if the session has ended.
    pub(super) fn ended(&self) -> Result<(), DtlsEnd> {
        self.ended.map_or(Ok(()), Err)
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Accepts a datagram of complete records.
    pub(super) fn take(&self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused> {
        if self.ended.is_some() || !is_whole(datagram) {
            return Err(Refused);
        }
        exchange.accept(datagram);
        Ok(())
    }

    /// Decrypts records up to the first with data.
    pub(super) fn read(
        &mut self,
        room: &mut [u8],
        exchange: &mut Exchange,
    ) -> Result<Option<usize>, DtlsEnd> {
        self.ended()?;
        if self.sealer.is_used_up() {
            // No data can be sent. After close_notify, the client can reconnect.
            return Err(self.end(DtlsEnd::KeysUsedUp));
        }
        // Responses are written to the same exchange.
        let input = std::mem::take(&mut exchange.input);
        let mut at = exchange.read;
        let mut found = Ok(None);
        while let Some((record, rest)) = take_record(&input[at..]) {
            at = input.len() - rest.len();
            match self.take_one(&record, room, exchange) {
                Effect::Nothing => {}
                Effect::Data(len) => {
                    found = Ok(Some(len));
                    break;
                }
                Effect::End(how) => {
                    found = Err(self.end(how));
                    break;
                }
            }
        }
        (exchange.input, exchange.read) = (input, at);
        found
    }

    fn take_one(
        &mut self,
        record: &Record<'_>,
        room: &mut [u8],
        exchange: &mut Exchange,
    ) -> Effect {
        if record.epoch != EPOCH {
            // Retransmitted, unencrypted part of a handshake flight. The flight's Finished is
            // encrypted.
            return Effect::Nothing;
        }
        let len = match self.opener.open(record, room) {
            Ok(len) => len,
            Err(NotOpened::Repeated | NotOpened::Forged) => {
                exchange.discarded += 1;
                return Effect::Nothing;
            }
            Err(NotOpened::KeysUsedUp) => return Effect::End(DtlsEnd::KeysUsedUp),
        };
        match (record.content, &room[..len]) {
            (APPLICATION_DATA, _) => {
                if !self.last_flight.is_empty() {
                    // The client has received the server's Finished.
                    self.last_flight = Vec::new();
                }
                Effect::Data(len)
            }
            (ALERT, [_, CLOSE_NOTIFY]) => Effect::End(DtlsEnd::ByClient),
            (ALERT, [FATAL, _]) => Effect::End(DtlsEnd::Broken),
            (HANDSHAKE, [kind, ..]) => {
                self.answer(*kind, exchange);
                Effect::Nothing
            }
            _ => Effect::Nothing,
        }
    }

    /// Responds to a handshake message, up to a limit per session.
    fn answer(&mut self, kind: u8, exchange: &mut Exchange) {
        let Some(left) = self.answers.checked_sub(1) else { return };
        match kind {
            FINISHED => {
                for datagram in &self.last_flight {
                    exchange.send(|out| out.extend_from_slice(datagram));
                }
            }
            // Renegotiation is declined; the client may continue (RFC 5246 §7.2.2).
            CLIENT_HELLO => self.alert(WARNING, NO_RENEGOTIATION, exchange),
            _ => return,
        }
        self.answers = left;
    }

    pub(super) fn write(
        &mut self,
        plaintext: &[u8],
        exchange: &mut Exchange,
    ) -> Result<(), NotSent> {
        if plaintext.is_empty() || plaintext.len() > PLAINTEXT_MAX || self.ended.is_some() {
            return Err(NotSent);
        }
        let sealer = &mut self.sealer;
        let sealed = exchange.send(|out| sealer.seal(APPLICATION_DATA, plaintext, out));
        sealed.map_err(|KeysUsedUp| NotSent)
    }

    /// Sends close_notify, only once, and not after a fatal alert.
    pub(super) fn close(&mut self, exchange: &mut Exchange) {
        if !self.is_closed && self.ended != Some(DtlsEnd::Broken) {
            self.alert(WARNING, CLOSE_NOTIFY, exchange);
        }
        self.is_closed = true;
        self.end(DtlsEnd::ByClient);
    }

    fn alert(&mut self, level: u8, description: u8, exchange: &mut Exchange) {
        let sealer = &mut self.sealer;
        // Nothing more is sent if no record number is left.
        let _sent = exchange.send(|out| sealer.seal(ALERT, &[level, description], out));
    }

    fn end(&mut self, how: DtlsEnd) -> DtlsEnd {
        *self.ended.get_or_insert(how)
    }
}

/// Returns true for a few complete records of a session, optionally after unencrypted records.
fn is_whole(mut datagram: &[u8]) -> bool {
    let (mut is_of_session, mut records) = (false, 0);
    while !datagram.is_empty() {
        records += 1;
        if records > RECORDS_PER_DATAGRAM_MAX {
            return false;
        }
        let Some((record, rest)) = take_record(datagram) else { return false };
        match (record.epoch, record.content) {
            (EPOCH, APPLICATION_DATA | ALERT | HANDSHAKE) => is_of_session = true,
            // Unencrypted records can be forged by anyone, and have no effect.
            (0, HANDSHAKE | CHANGE_CIPHER_SPEC) => {}
            _ => return false,
        }
        datagram = rest;
    }
    is_of_session
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
