//! The JSON of a live allocation, and its making from the session of a worker.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turn_proto::AllocationPeers;
use turn_types::{Instant, PeerAddr};

use super::Volume;

/// One live allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// 16 hexadecimal digits, for `DELETE /v1/sessions/{id}`.
    pub id: String,
    /// The user, as authenticated; empty on an open relay.
    pub user: String,
    /// Account for quotas: the user without the time stamp of a time-limited name. Of a session by
    /// access tokens that of the token shown last.
    pub account: String,
    /// The client has an access token (RFC 7635): the user is the name of its key, and the account
    /// the name to revoke.
    #[serde(default)]
    pub by_token: bool,
    /// The realm.
    pub realm: String,
    /// `udp`, `tcp`, `tls` or `dtls`.
    pub transport: String,
    /// Address of the client.
    pub client: String,
    /// The listener it talks to.
    pub server: String,
    /// The relayed addresses, as the client was told them: at most one of each family.
    pub relayed: Vec<String>,
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// Seconds until it ends unless it is refreshed.
    pub expires_in_seconds: u64,
    /// Live permissions.
    pub permissions: u64,
    /// Live channel bindings.
    pub channels: u64,
    /// Relayed protocol: `udp` or `tcp`.
    pub relays: String,
    /// Connections with peers, of a session that relays TCP, including those being opened.
    pub connections: u64,
    /// Payload relayed from client to peers.
    pub to_peers: Volume,
    /// Payload relayed from peers to client.
    pub to_client: Volume,
    /// Packets dropped in either direction.
    pub dropped_packets: u64,
    /// Relay of the data of its channels.
    #[serde(default)]
    pub offload: SessionOffload,
    /// Rates of the last seconds; absent where they are not known yet, and unless `rates` or an
    /// order by them was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<SessionRates>,
    /// Its peers; absent unless `peers` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<SessionPeers>,
}

/// Peers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPeers {
    /// Its permissions.
    pub permissions: Vec<PermittedPeer>,
    /// Its channels.
    pub channels: Vec<BoundChannel>,
    /// Peers that it has connections with, of a session that relays TCP.
    pub connected_peers: Vec<String>,
}

/// A peer that may send to the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermittedPeer {
    /// Its address; every port is permitted.
    pub peer: String,
    /// Seconds until the permission ends unless it is refreshed.
    pub expires_in_seconds: u64,
}

/// A channel binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundChannel {
    /// Its number: `0x4000`.
    pub number: String,
    /// Address and port of the peer.
    pub peer: String,
    /// Seconds until it ends unless it is refreshed.
    pub expires_in_seconds: u64,
}

/// Rates of a session's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRates {
    /// From client to peers.
    pub to_peers: Rate,
    /// From peers to client.
    pub to_client: Rate,
}

/// A rate of relayed payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Datagrams per second.
    pub packets_per_second: u64,
    /// Bits per second.
    pub bits_per_second: u64,
}

/// Relay of the data of a session's channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionOffload {
    /// `kernel`, when it has a route for one channel at least; otherwise `sockets`. With a route it
    /// relays a channel's packets once the host's rules were seen to forward them: see `packets`.
    pub by: String,
    /// The reason for sockets: `off` (there is no kernel path), `no_channel` (none is bound),
    /// `silent` (no recent data on its channels), `full` (no free slot), `share` (few free slots,
    /// and the client has its share), `transport` (not UDP) or `failed` (the kernel refused).
    /// Absent where it is the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Channels with a route in the kernel, of the session's `channels`.
    pub channels: u64,
    /// Packets that the kernel relayed on them, both directions together; 0 while the sockets still
    /// relay all.
    pub packets: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Whole seconds since the kernel relayed the last one; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_seconds_ago: Option<u64>,
}

impl Session {
    /// The name that `turnpike user revoke` takes; empty on an open relay. The key of a token has
    /// many users.
    #[must_use]
    pub fn revocable_name(&self) -> &str {
        if self.by_token { &self.account } else { &self.user }
    }

    /// The format of a session, with ages by the clock of its worker.
    pub(crate) fn of(session: &control::Session, now: Instant) -> Self {
        let record = &session.record;
        let traffic = &record.traffic;
        Self {
            id: record.id.to_string(),
            user: record.user.to_string(),
            account: record.latest_account().to_owned(),
            by_token: record.is_by_token,
            realm: record.realm.to_string(),
            transport: record.five_tuple.transport.label().to_owned(),
            client: record.five_tuple.client.to_string(),
            server: record.five_tuple.server.to_string(),
            relayed: record.relayed.iter().flatten().map(ToString::to_string).collect(),
            age_seconds: now.saturating_since(record.created).as_secs(),
            expires_in_seconds: record.expires.saturating_since(now).as_secs(),
            permissions: u64::from(record.permissions),
            channels: u64::from(record.channels),
            relays: record.attributes.protocol.name().to_owned(),
            connections: u64::from(record.connections),
            to_peers: Volume { packets: traffic.to_peer_packets, bytes: traffic.to_peer_bytes },
            to_client: Volume {
                packets: traffic.to_client_packets,
                bytes: traffic.to_client_bytes,
            },
            dropped_packets: traffic.dropped_packets,
            offload: SessionOffload::of(session.offload, now),
            rates: None,
            peers: None,
        }
    }
}

impl SessionPeers {
    /// The format of peers, with times left by the clock of their worker.
    pub(crate) fn of(peers: &AllocationPeers, now: Instant) -> Self {
        let left = |end: Instant| end.saturating_since(now).as_secs();
        let permission = |(ip, end): &(IpAddr, Instant)| PermittedPeer {
            peer: ip.to_string(),
            expires_in_seconds: left(*end),
        };
        let channel = |(number, peer, end): &(u16, PeerAddr, Instant)| BoundChannel {
            number: format!("{number:#06x}"),
            peer: peer.to_string(),
            expires_in_seconds: left(*end),
        };
        Self {
            permissions: peers.permissions.iter().map(permission).collect(),
            channels: peers.channels.iter().map(channel).collect(),
            connected_peers: peers.connections.iter().map(ToString::to_string).collect(),
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.permissions.len() + self.channels.len() + self.connected_peers.len()
    }
}

impl SessionOffload {
    fn of(offload: control::SessionOffload, now: Instant) -> Self {
        match offload {
            control::SessionOffload::Kernel { channels, packets, bytes, last_seen } => Self {
                by: "kernel".to_owned(),
                reason: None,
                channels: u64::from(channels),
                packets,
                bytes,
                last_seen_seconds_ago: last_seen.map(|at| now.saturating_since(at).as_secs()),
            },
            control::SessionOffload::Sockets(why) => Self {
                by: "sockets".to_owned(),
                reason: Some(why.label().to_owned()),
                ..Self::default()
            },
        }
    }
}
