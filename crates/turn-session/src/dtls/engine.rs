//! Interface of one session.

use std::fmt;

use super::state::DtlsState;

/// Datagrams between the network and DTLS sessions. A thread uses one for all its sessions, so that
/// none keeps buffers of its own.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The received datagram, until it is read.
    pub(super) input: Vec<u8>,
    /// Number of bytes read from `input`.
    pub(super) read: usize,
    /// Records that were repeated or not authentic.
    pub(super) discarded: u64,
    /// Outgoing datagrams, concatenated, and the end of each.
    pub(super) output: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl Exchange {
    /// Datagrams to send to the client, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.output[start..end])
    }

    /// Records that were repeated, too old or not authentic, since the last call.
    pub const fn take_discarded(&mut self) -> u64 {
        std::mem::replace(&mut self.discarded, 0)
    }

    /// Replaces the received datagram.
    pub(super) fn accept(&mut self, datagram: &[u8]) {
        self.input.clear();
        self.input.extend_from_slice(datagram);
        self.read = 0;
    }

    /// Adds a datagram to send, unless nothing is written.
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

/// Reason for which a DTLS session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsEnd {
    /// The client closed it (close_notify).
    ByClient,
    /// The handshake failed: no cipher suite or application protocol in common, or worse.
    Failed,
    /// The client sent a fatal alert, or broke the rules of the protocol.
    Broken,
    /// The limit of protected data or of forged records was reached.
    KeysUsedUp,
}

/// The datagram went no further: it is too many, too long or makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Nothing was sent: the handshake is not done, or it is too long for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The server's end of one DTLS session. After each call, also a failed one, the [`Exchange`] holds
/// the datagrams to send.
pub trait DtlsEngine: fmt::Debug + Send {
    /// Accepts a datagram from the network; call [`read`](Self::read) until it returns `None`.
    ///
    /// # Errors
    /// The datagram was dropped.
    fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused>;

    /// Decrypts one record into `room`, which is at least as long as the datagram, and returns the
    /// length; `None` when there is no further record.
    ///
    /// # Errors
    /// The session has ended.
    fn read(&mut self, room: &mut [u8], exchange: &mut Exchange) -> Result<Option<usize>, DtlsEnd>;

    /// Sends one record to the client.
    ///
    /// # Errors
    /// Nothing was sent; the session is unchanged.
    fn write(&mut self, plaintext: &[u8], exchange: &mut Exchange) -> Result<(), NotSent>;

    /// Retransmits the flight that the client has not answered in time (RFC 6347 §4.2.4). Call it
    /// several times a second until the handshake is complete.
    ///
    /// # Errors
    /// The session has ended.
    fn resend(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd>;

    /// Sends close_notify.
    fn close(&mut self, exchange: &mut Exchange);

    /// The name that the client asked for (SNI, RFC 6066 §3).
    fn server_name(&self) -> Option<&str>;

    /// True if the handshake is complete.
    fn is_established(&self) -> bool;

    /// Returns the state of an established session, for [`resume`](super::resume) in another
    /// process; `None` before and after.
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
