//! Authentication: shared secrets, users of the database, access tokens.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::section::section;
use crate::value::{OpenRelay, SecretText, Text};

section! {
    /// Authentication of clients.
    Auth {
        /// Secret shared with the service that issues time-limited credentials: the user name is
        /// `<expiry>:<user>`, `<user>:<expiry>` or `<expiry>` alone, the expiry in seconds since
        /// 1970, and the password is the base64 of HMAC-SHA1(secret, name). Every reader of the
        /// configuration file can read it there: `secret_file` is better.
        live secret: Option<SecretText> = None;
        /// File that holds the secret; blanks and line breaks at its ends are ignored. Relative to
        /// the configuration file. A reload reads it again.
        #[schemars(example = &"/etc/turnpike/secret")]
        live secret_file: Option<PathBuf> = None;
        /// More shared secrets, each with a name for the logs: to change a secret, add the new one,
        /// move the service over, and remove the old one. Each is tried in turn.
        #[schemars(
            example = serde_json::json!([{ "name": "2027", "secret_file": "/etc/turnpike/secret-2027" }])
        )]
        live secrets: Vec<SecretEntry> = Vec::new();
        /// Character between time and user in time-limited names, for services that write another
        /// one than a colon; in all realms. Logs show such names whole.
        #[schemars(example = &"-")]
        live separator: Text<1, 1> = Text::fixed(":");
        /// Time-limited names may have limits behind the user, such as
        /// `1900000000:alice?allocations=2&lifetime=600`, which narrow what the realm allows
        /// (docs/operate/credentials.md). Off by default, as a question mark may be part of a name.
        live limits_in_names: bool = false;
        /// Accepts the users of the database (`turnpike user add`), beside time-limited
        /// credentials. Users that are added or deleted take effect within a second; a deleted
        /// user, or one with a new password, cannot refresh existing allocations. To end them at
        /// once: `turnpike session end`.
        live users: bool = true;
        /// Answers STUN Binding to users alone, who log in as for TURN. Few clients do: browsers
        /// ask for their address without credentials, and learn it from TURN then. Not with
        /// `discovery` or `compatibility.rfc3489_clients`, whose clients have none.
        live binding: bool = false;
        /// Relays for everyone, without authentication. An open relay is found and abused within
        /// hours.
        live open_relay: OpenRelay = OpenRelay::No;
        /// Refuses to refresh allocations, permissions and channels when the time-limited
        /// credential has expired; otherwise expiry refuses new allocations only, and calls that
        /// are under way go on.
        live expiry_at_refresh: bool = true;
        /// File with a secret that servers with one name share, such as those behind an anycast
        /// address or a load balancer: each accepts the nonces of the others, so that a client that
        /// changes servers needs no new one. Without it each start makes a key of its own. With
        /// another key clients get new nonces; calls go on.
        #[schemars(example = &"/etc/turnpike/nonce-key")]
        live nonce_key_file: Option<PathBuf> = None;
        /// Accepts the hash of a user name instead of the name (RFC 8489 §14.4). Offered only while
        /// there are no shared secrets: a time-limited name cannot be found from its hash.
        live userhash: bool = true;
        /// Keys shared with an authorization server that issues access tokens (RFC 7635), beside or
        /// instead of the above. Allocations end when their token expires unless they are refreshed
        /// with another. `quotas.allocations_per_user` counts by token. To change a key, add the
        /// new one under a name of its own, move the authorization server over, and remove the old
        /// one.
        #[schemars(
            example = serde_json::json!([{ "kid": "2027", "key_file": "/etc/turnpike/token-key-2027" }])
        )]
        live token_keys: Vec<TokenKeyEntry> = Vec::new();
        /// Name of this server at the authorization server: sent to clients, and required in
        /// tokens. By default the realm.
        #[schemars(example = &"turn1.example.org")]
        live server_name: Option<Text<1, { turn_proto::limits::SERVER_NAME_BYTES_MAX }>> = None;
    }
}

/// An entry of `auth.secrets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecretEntry {
    /// Name for the logs.
    pub name: Option<Text<1, 64>>,
    /// The secret, 16 bytes or more.
    pub secret: Option<SecretText>,
    /// File that holds the secret, instead of `secret`.
    pub secret_file: Option<PathBuf>,
}

/// An entry of `auth.token_keys`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenKeyEntry {
    /// Name of the key (`kid`), which clients send as their user name.
    pub kid: Option<Text<1, 255>>,
    /// The key in base64: 32 bytes for `A256GCM`, 16 for `A128GCM`.
    pub key: Option<SecretText>,
    /// File that holds the key in base64, instead of `key`.
    pub key_file: Option<PathBuf>,
    /// Encryption of the tokens: `A256GCM` (AES-256-GCM, the default) or `A128GCM`.
    pub algorithm: TokenCipher,
}

/// Encryption of access tokens (RFC 7635 §4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TokenCipher {
    /// AES-256-GCM.
    #[default]
    #[serde(rename = "A256GCM")]
    A256Gcm,
    /// AES-128-GCM.
    #[serde(rename = "A128GCM")]
    A128Gcm,
}
