//! Interface of a single DTLS session.

use std::fmt;

use super::state::DtlsState;

/// Buffers for datagrams between the network and DTLS sessions. A thread shares one exchange among
/// all sessions, so that sessions need no buffers.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Received datagram that is not completely read.
    pub(super) input: Vec<u8>,
    /// Number of bytes read from `input`.
    pub(super) read: usize,
    /// Number of records that were repeated or not authentic.
    pub(super) discarded: u64,
    /// Outgoing datagrams, concatenated; `ends` contains the end of each.
    pub(super) output: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl Exchange {
    /// Returns the datagrams to send to the client, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.output[start..end])
    }

    /// Returns the number of repeated, outdated or forged records since the last call.
    pub const fn take_discarded(&mut self) -> u64 {
        std::mem::replace(&mut self.discarded, 0)
    }

    /// Replaces the received datagram.
    pub(super) fn accept(&mut self, datagram: &[u8]) {
        self.input.clear();
        self.input.extend_from_slice(datagram);
        self.read = 0;
    }

    /// Adds the datagram that `write` appends, unless nothing is written.
    pub(super) fn send<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.output.len();
        let written = write(&mut self.output);
        if self.output.len() > before {
            self.ends.push(self.output.len());
        }
        written
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.input.clear();
        self.read = 0;
        self.discarded = 0;
        self.output.clear();
        self.ends.clear();
    }
}

/// Reason why a DTLS session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsEnd {
    /// The client closed the session (close_notify).
    ByClient,
    /// The handshake failed, for example without a common cipher suite or application protocol.
    Failed,
    /// The client sent a fatal alert, or violated the protocol.
    Broken,
    /// The keys reached the limit of protected data or of forged records.
    KeysUsedUp,
}

/// Error: the session has dropped the datagram. The datagram is malformed, too long, or beyond a
/// limit, or the session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Error: nothing was sent. The handshake is incomplete, the session has ended, the keys are used
/// up, or the plaintext is empty or too long for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The server's side of one DTLS session. After each call, even a failed one, the [`Exchange`]
/// contains the datagrams to send.
pub trait DtlsEngine: fmt::Debug + Send {
    /// Accepts a datagram from the network. Call [`read`](Self::read) afterwards until `None` is
    /// returned.
    ///
    /// # Errors
    /// The datagram was dropped.
    fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused>;

    /// Decrypts one record into `room`, and returns the length of the plaintext. Returns `None` if
    /// no record remains. `room` must be at least as long as the datagram.
    ///
    /// # Errors
    /// The session has ended.
    fn read(&mut self, room: &mut [u8], exchange: &mut Exchange) -> Result<Option<usize>, DtlsEnd>;

    /// Sends one record to the client.
    ///
    /// # Errors
    /// Nothing was sent, and the session is unchanged.
    fn write(&mut self, plaintext: &[u8], exchange: &mut Exchange) -> Result<(), NotSent>;

    /// Retransmits the last flight if the client has not responded in time (RFC 6347 §4.2.4). Call
    /// this several times a second until the handshake is complete.
    ///
    /// # Errors
    /// The session has ended.
    fn resend(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd>;

    /// Sends close_notify, or a fatal alert during the handshake.
    fn close(&mut self, exchange: &mut Exchange);

    /// Returns the server name requested by the client (SNI, RFC 6066 §3).
    fn server_name(&self) -> Option<&str>;

    /// Returns true if the handshake is complete.
    fn is_established(&self) -> bool;

    /// Returns the state of an established session, for [`resume`](super::resume) in another
    /// process. Returns `None` during the handshake and after the end of the session.
    fn state(&self) -> Option<DtlsState>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_datagram_is_left_to_be_sent_again() {
        let mut exchange = Exchange::default();
        exchange.accept(&[1]);
        exchange.send(|out| out.extend([2, 2]));
        exchange.send(|_| ());
        exchange.send(|out| out.push(3));
        assert!(exchange.datagrams().eq([&[2, 2][..], &[3]]));
        exchange.clear();
        assert_eq!(exchange.datagrams().count(), 0);
        assert!(exchange.input.is_empty() && exchange.output.is_empty());
    }
}
