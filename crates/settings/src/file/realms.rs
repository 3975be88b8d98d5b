//! Realms beside the server's own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::{SecretEntry, TokenKeyEntry};
use crate::value::{Bytes, Count, Duration, Endpoint, Prefix, Text};

/// An entry of `realms`. What it leaves out is as for the server's own realm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealmEntry {
    /// Its name, part of every user's key (`turnpike user add --realm`).
    pub name: Option<Text<1, 127>>,
    /// Web pages whose clients it serves, as `"https://meet.example.org"`: clients that send ORIGIN
    /// choose it by that.
    pub origins: Vec<Text<1, { turn_proto::limits::ORIGIN_BYTES_MAX }>>,
    /// Names of this server that choose it, where a client over TLS asks for one (SNI). Their
    /// certificates stand in `tls.certificates`.
    pub server_names: Vec<Text<1, 253>>,
    /// Listeners whose clients it serves: entries of `listen` or `tls.listen`.
    pub listen: Vec<Endpoint>,
    /// SOFTWARE attribute of its responses.
    pub software: Option<Text<1, 127>>,
    /// Accepts users of the database that were added in this realm; by default as `auth.users`.
    pub users: Option<bool>,
    /// Secrets shared with the services that issue its time-limited credentials; by default none,
    /// as those of `auth` count in the server's own realm alone.
    pub secrets: Vec<SecretEntry>,
    /// Keys of the access tokens (RFC 7635) of its authorization server; by default none, as those
    /// of `auth` count in the server's own realm alone.
    pub token_keys: Vec<TokenKeyEntry>,
    /// Name of this server at that authorization server; by default `auth.server_name`, or the name
    /// of the realm.
    pub token_server_name: Option<Text<1, { turn_proto::limits::SERVER_NAME_BYTES_MAX }>>,
    /// Rules for its peers, beside those of the server's `peers`.
    pub peers: RealmPeers,
    /// Limits of its own.
    pub quotas: RealmQuotas,
    /// Lifetimes of its own.
    pub lifetimes: RealmLifetimes,
    /// The servers that its clients are sent to; by default those of `redirect`.
    pub redirect: RealmRedirect,
}

/// Rules for the peers of a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealmPeers {
    /// As `peers.allow`.
    pub allow: Vec<Prefix>,
    /// As `peers.deny`.
    pub deny: Vec<Prefix>,
}

/// Limits of a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealmQuotas {
    /// As `quotas.allocations_per_user`.
    pub allocations_per_user: Option<Count<0, 10_000_000>>,
    /// Allocations of this realm at a time, within `quotas.allocations_total`; 0, the default, is
    /// no limit of its own. More are refused with 486.
    pub allocations_total: Option<Count<0, 10_000_000>>,
    /// As `quotas.permissions`.
    pub permissions: Option<Count<1, { turn_proto::limits::PERMISSIONS_MAX }>>,
    /// As `quotas.channels`.
    pub channels: Option<Count<1, { turn_proto::limits::CHANNELS_MAX }>>,
    /// As `quotas.bytes_per_second`.
    pub bytes_per_second: Option<Bytes<0, { 1 << 40 }>>,
    /// As `quotas.bytes_per_second_total`, of this realm and within that of the server; `"0 B"`,
    /// the default, is no limit of its own.
    pub bytes_per_second_total: Option<Bytes<0, { 1 << 40 }>>,
}

/// Lifetimes of a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealmLifetimes {
    /// As `lifetimes.allocation_default`.
    pub allocation_default: Option<Duration<60, 3600>>,
    /// As `lifetimes.allocation_max`.
    pub allocation_max: Option<Duration<60, 86_400>>,
    /// As `lifetimes.nonce`.
    pub nonce: Option<Duration<60, 3600>>,
}

/// Redirection of a realm's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealmRedirect {
    /// As `redirect.ipv4`.
    pub ipv4: Option<Endpoint>,
    /// As `redirect.ipv6`.
    pub ipv6: Option<Endpoint>,
    /// As `redirect.servers`.
    pub servers: Vec<Endpoint>,
    /// As `redirect.udp`.
    pub udp: Vec<Endpoint>,
    /// As `redirect.tcp`.
    pub tcp: Vec<Endpoint>,
    /// As `redirect.tls`.
    pub tls: Vec<Endpoint>,
    /// As `redirect.domain`.
    pub domain: Option<Text<1, 255>>,
}
