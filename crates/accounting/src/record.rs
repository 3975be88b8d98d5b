//! The record of a session, as it is written.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::SessionEvent;
use serde::{Deserialize, Serialize};
use turn_proto::{AllocationRecord, DropReason, EndReason, Refusal};

/// End reason of a session whose process ended unexpectedly.
pub(crate) const PROCESS_LOST: &str = "process_lost";

/// Occasion of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordEvent {
    /// The session has started. Outputs get no such record.
    Start,
    /// The session goes on; its counts are those up to now.
    Interim,
    /// The session has ended; its counts are final.
    End,
}

/// Traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// A session, or its part up to now. Counts are since its start: a later record of the same `id`
/// replaces the ones before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Occasion.
    pub event: RecordEvent,
    /// The session: 16 hexadecimal digits, unique until the server is started again.
    pub id: String,
    /// Start, in seconds since 1970.
    pub started: u64,
    /// Time of the record, in seconds since 1970; of `end` the end of the session.
    pub time: u64,
    /// Whole seconds from its start to the record.
    pub seconds: u64,
    /// Reason of the end (docs/operate/reasons.md); absent of `interim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user, as authenticated; empty on an open relay.
    pub user: String,
    /// The user without the time of a time-limited name.
    pub account: String,
    /// The realm.
    pub realm: String,
    /// `udp`, `tcp`, `tls` or `dtls`.
    pub transport: String,
    /// Address of the client.
    pub client: String,
    /// The listener it talks to.
    pub server: String,
    /// The relayed addresses.
    pub relayed: Vec<String>,
    /// Relayed protocol: `udp` or `tcp`.
    pub relays: String,
    /// From client to peers.
    pub to_peers: Volume,
    /// From peers to client.
    pub to_client: Volume,
    /// Packets of both directions that the kernel path relayed, and the sockets did not.
    #[serde(default)]
    pub kernel_packets: u64,
    /// Packets dropped in either direction.
    pub dropped_packets: u64,
    /// Dropped packets by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// Refused requests by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, u64>,
}

impl Record {
    /// Builds the record of an event that has just arrived, if the event is about one session.
    #[must_use]
    pub fn of(event: &SessionEvent, now: SystemTime) -> Option<Self> {
        let (kind, record, lived, reason) = match event {
            SessionEvent::Ended(record) => {
                let (reason, at) = record.end.unzip();
                let lived = at.map_or(Duration::ZERO, |at| at.saturating_since(record.created));
                (RecordEvent::End, record, lived, reason)
            }
            SessionEvent::Created(record) => (RecordEvent::Start, record, Duration::ZERO, None),
            SessionEvent::Survivors(_) => return None,
            SessionEvent::Refreshed { record, at } | SessionEvent::Interim { record, at } => {
                (RecordEvent::Interim, record, at.saturating_since(record.created), None)
            }
        };
        Some(Self::from_parts(kind, record, lived, reason, now))
    }

    /// Builds the end record of a session whose process ended unexpectedly after this record.
    pub(crate) fn lost(self) -> Self {
        Self { event: RecordEvent::End, reason: Some(PROCESS_LOST.to_owned()), ..self }
    }

    fn from_parts(
        event: RecordEvent,
        record: &AllocationRecord,
        lived: Duration,
        reason: Option<EndReason>,
        now: SystemTime,
    ) -> Self {
        let unix =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let traffic = &record.traffic;
        Self {
            event,
            id: record.id.to_string(),
            started: unix(now.checked_sub(lived).unwrap_or(UNIX_EPOCH)),
            time: unix(now),
            seconds: lived.as_secs(),
            reason: reason.map(|reason| EndReason::label(reason).to_owned()),
            user: record.user.to_string(),
            account: record.account.to_string(),
            realm: record.realm.to_string(),
            transport: record.five_tuple.transport.label().to_owned(),
            client: record.five_tuple.client.to_string(),
            server: record.five_tuple.server.to_string(),
            relayed: record.relayed.iter().flatten().map(ToString::to_string).collect(),
            relays: record.attributes.protocol.name().to_owned(),
            to_peers: Volume { packets: traffic.to_peer_packets, bytes: traffic.to_peer_bytes },
            to_client: Volume {
                packets: traffic.to_client_packets,
                bytes: traffic.to_client_bytes,
            },
            kernel_packets: record.history.carried_packets,
            dropped_packets: traffic.dropped_packets,
            drops: counts(&record.history.drops, DropReason::label),
            refusals: counts(&record.history.refusals, Refusal::label),
        }
    }

    /// The record as a line of JSON, with its line break.
    #[must_use]
    pub fn line(&self) -> String {
        // Strings, numbers, and maps with keys of strings: this does not fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

fn counts<R: Copy>(
    counts: &[(R, u64)],
    label: impl Fn(R) -> &'static str,
) -> BTreeMap<String, u64> {
    counts.iter().map(|&(reason, count)| (label(reason).to_owned(), count)).collect()
}
