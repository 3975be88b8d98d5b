//! State of a DTLS session, for a move to another process or for a copy there.

use std::fmt;

use state_format::fields;

use super::keys::{DirectionKeys, MASTER_SECRET, RANDOM, Suite, derive};
use super::limits::ANSWERS_MAX;
use super::replay::ReplayWindow;

/// Exported state of a session after the handshake. Keys are wiped on drop. The serialised bytes
/// ([`Value`](state_format::Value)) are as secret as the keys.
///
/// Two records with the same key and number would reveal both plaintexts. A process that resumes
/// from an outdated state must [skip](Self::skip) more numbers than were used since.
pub struct DtlsState {
    pub(super) reading: Reading,
    pub(super) writing: Writing,
    /// Server name from the client (SNI), in lower case.
    pub(super) server_name: Option<String>,
    /// Last datagrams of the handshake, retained until the client proves their arrival.
    pub(super) last_flight: Vec<Vec<u8>>,
    /// Remaining number of responses to handshake messages.
    pub(super) answers: u8,
}

/// State of the direction from the client.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) keys: DirectionKeys,
    pub(super) window: ReplayWindow,
    /// Number of records that failed to verify.
    pub(super) forged: u64,
}

/// State of the direction to the client.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) keys: DirectionKeys,
    /// Number of the next record. No record was protected with this number.
    pub(super) next: u64,
    /// Number of 16-byte blocks protected with the key.
    pub(super) blocks: u64,
}

fields!(DtlsState {
    1 => reading,
    2 => writing,
    3 => server_name,
    4 => last_flight,
    5 => answers,
});
fields!(Reading { 1 => keys, 2 => window, 3 => forged });
fields!(Writing { 1 => keys, 2 => next, 3 => blocks });

/// Number of 16-byte blocks in a record of the length of an Ethernet packet.
const BLOCKS_PER_RECORD: u64 = 1500 / 16 + 2;

/// Maximum number of records charged by [`DtlsState::skip`].
const CHARGED_MAX: u64 = 1 << 20;

impl DtlsState {
    /// Returns the states of both sides after a handshake with these secrets (RFC 5246 §6.3), the
    /// server's first. Tests use this for sessions without a handshake.
    ///
    /// `suite` is the IANA name of the cipher suite. Returns `None` if the suite is not supported.
    #[must_use]
    pub fn of_secrets(
        suite: &str,
        master_secret: &[u8; MASTER_SECRET],
        [client_random, server_random]: [&[u8; RANDOM]; 2],
    ) -> Option<[Self; 2]> {
        let [client, server] =
            derive(Suite::of(suite)?, master_secret, client_random, server_random)?;
        let end = |read: &DirectionKeys, write: &DirectionKeys| Self {
            reading: Reading { keys: read.clone(), window: ReplayWindow::default(), forged: 0 },
            // The Finished was encrypted with number 0.
            writing: Writing { keys: write.clone(), next: 1, blocks: 0 },
            server_name: None,
            last_flight: vec![b"the last flight".to_vec()],
            answers: ANSWERS_MAX,
        };
        Some([end(&client, &server), end(&server, &client)])
    }

    /// Skips record numbers that another process may have used since the export. The key is charged
    /// for at most a million records, because the real number is unknown.
    pub const fn skip(&mut self, records: u64) {
        self.writing.next = self.writing.next.saturating_add(records);
        let charged = if records < CHARGED_MAX { records } else { CHARGED_MAX };
        self.writing.blocks = self.writing.blocks.saturating_add(charged * BLOCKS_PER_RECORD);
    }
}

impl fmt::Debug for DtlsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writing: Writing { keys, .. }, .. } = self;
        f.debug_struct("DtlsState").field("cipher", &keys.cipher).finish_non_exhaustive()
    }
}
