//! What an association needs of a library for DTLS, and nothing that is such a library's own.

use std::fmt;

/// Datagrams that go between the network and an association. One is used for all associations of a
/// thread, so that none of them keeps room for what passes through.
#[derive(Debug, Default)]
pub struct Exchange {
    /// What came, until it is taken.
    pub(super) input: Vec<u8>,
    /// What is to go, one behind the other, and where each ends.
    pub(super) output: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl Exchange {
    /// What is to be sent to the client, in this order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.output[start..end])
    }

    /// Forgets what was to be sent.
    pub fn clear(&mut self) {
        self.input.clear();
        self.output.clear();
        self.ends.clear();
    }
}

/// How an association ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsEnd {
    /// The client said that it goes (close_notify).
    ByClient,
    /// The handshake failed: no cipher suite or application protocol in common, or worse.
    Failed,
    /// The client began another handshake within it, or broke its rules otherwise.
    Broken,
}

/// The datagram went no further: it is too many, too long or makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Nothing was sent: the handshake is not done, or it is too long for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The server's end of one association. What it has to say to the client is in the [`Exchange`] after each
/// call, also after one that failed.
pub trait DtlsEngine: fmt::Debug + Send {
    /// Takes a datagram from the network, which [`read`](Self::read) must follow until there is no more.
    ///
    /// # Errors
    /// It went no further.
    fn take(&mut self, datagram: &[u8], exchange: &mut Exchange) -> Result<(), Refused>;

    /// What the client said in one record: writes it into `room`, which is as long as the datagram at
    /// least, and returns how long it is; `None` when there is nothing more.
    ///
    /// # Errors
    /// The association has ended.
    fn read(&mut self, room: &mut [u8], exchange: &mut Exchange) -> Result<Option<usize>, DtlsEnd>;

    /// Says something to the client in one record.
    ///
    /// # Errors
    /// It was not said; all else stays as it was.
    fn write(&mut self, plaintext: &[u8], exchange: &mut Exchange) -> Result<(), NotSent>;

    /// Sends again what the client has not answered in time (RFC 6347 §4.2.4). To be called several times a
    /// second until the handshake is done.
    ///
    /// # Errors
    /// The association has ended.
    fn resend(&mut self, exchange: &mut Exchange) -> Result<(), DtlsEnd>;

    /// Says that nothing more comes.
    fn close(&mut self, exchange: &mut Exchange);

    /// Whether the handshake is done.
    fn is_established(&self) -> bool;
}
