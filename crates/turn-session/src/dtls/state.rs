//! State of a session that goes to another process, or of which another process keeps a copy.

use std::fmt;

use state_format::fields;

use super::keys::{DirectionKeys, MASTER_SECRET, RANDOM, Suite, derive};
use super::limits::ANSWERS_MAX;
use super::replay::ReplayWindow;

/// State of a session after its handshake. Keys are wiped when it is dropped; the bytes of its
/// [`Value`](state_format::Value) are as secret as the keys.
///
/// Two records with the same key and number would reveal both plaintexts. A process that resumes
/// from an outdated state must [skip](Self::skip) more numbers than were used since.
pub struct DtlsState {
    pub(super) reading: Reading,
    pub(super) writing: Writing,
    /// SNI, in lower case.
    pub(super) server_name: Option<String>,
    /// The last datagrams of the handshake, until the client has shown that it has them.
    pub(super) last_flight: Vec<Vec<u8>>,
    /// Remaining number of responses to handshake messages.
    pub(super) answers: u8,
}

/// State of the direction from the client.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) keys: DirectionKeys,
    pub(super) window: ReplayWindow,
    /// Records that failed to verify.
    pub(super) forged: u64,
}

/// State of the direction to the client.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) keys: DirectionKeys,
    /// Number of the next record; none was protected with it.
    pub(super) next: u64,
    /// Blocks that were protected.
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

/// Blocks of a record that is as long as an Ethernet packet.
const BLOCKS_PER_RECORD: u64 = 1500 / 16 + 2;

/// Maximum number of charged records.
const CHARGED_MAX: u64 = 1 << 20;

impl DtlsState {
    /// Returns the states of both ends after a handshake with these secrets (RFC 5246 §6.3), the
    /// server's first: sessions without a handshake, for tests. `suite` is the name at IANA;
    /// `None`: the suite is not served.
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
            // The Finished was encrypted.
            writing: Writing { keys: write.clone(), next: 1, blocks: 0 },
            server_name: None,
            last_flight: vec![b"the last flight".to_vec()],
            answers: ANSWERS_MAX,
        };
        Some([end(&client, &server), end(&server, &client)])
    }

    /// Skips record numbers, as many as another process can have used since the export. The key is
    /// charged for at most a million records: the real number is unknown.
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
