//! Revoked credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of what is revoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevocationKind {
    /// A name: of a user, the user part or the whole name of time-limited credentials, or the
    /// account of an access token.
    #[default]
    Name,
    /// A shared secret, by its name in the configuration: `default` is that of `auth.secret`.
    Secret,
    /// A key of access tokens, by its `kid`.
    TokenKey,
}

/// Body of `POST` and `DELETE /v1/revocations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The kind of what is named.
    #[serde(default)]
    pub kind: RevocationKind,
    /// Its name.
    pub name: String,
    /// Its realm; by default the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Time for which it is refused at least: a later end that is in force stays. By default until
    /// it is taken back; a name with an expiry in it, until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// A credential that is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revocation {
    /// The kind of what is refused.
    pub kind: RevocationKind,
    /// Its realm.
    pub realm: String,
    /// Its name.
    pub name: String,
    /// Beginning, in seconds since 1970.
    pub since_unix: u64,
    /// End, in seconds since 1970; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix: Option<u64>,
}

/// `GET /v1/revocations`: the credentials that are refused, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revocations {
    /// The revocations.
    pub revocations: Vec<Revocation>,
}

/// Answer to `POST /v1/revocations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// What is refused now.
    #[serde(flatten)]
    pub revocation: Revocation,
    /// Sessions that were ended.
    pub ended: u64,
}
