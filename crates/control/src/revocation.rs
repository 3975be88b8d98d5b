//! Revoked credentials, as an operator names them.

use std::time::Duration;

/// The kind of what is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevokedKind {
    /// A name: of a user, the user part or the whole name of time-limited credentials, or the
    /// account of a token.
    Name,
    /// A shared secret, by its name.
    Secret,
    /// A key of access tokens, by its name.
    TokenKey,
}

/// The thing that an operator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocable {
    /// Its kind.
    pub kind: RevokedKind,
    /// Its realm; `None` is the server's own.
    pub realm: Option<String>,
    /// Its name.
    pub name: String,
}

/// A revocation in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The kind of what is refused.
    pub kind: RevokedKind,
    /// Its realm.
    pub realm: String,
    /// Its name.
    pub name: String,
    /// Beginning, in seconds since 1970.
    pub since_unix: u64,
    /// End, in seconds since 1970; `None` until it is taken back.
    pub until_unix: Option<u64>,
}

/// Result of a revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeReport {
    /// What is refused now.
    pub revocation: Revocation,
    /// Sessions that were ended.
    pub ended: u64,
}

/// Why nothing was revoked, or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorError {
    /// The cause.
    pub kind: OperatorErrorKind,
    /// The error.
    pub error: String,
    /// Advice.
    pub hint: String,
}

/// Cause of a [`OperatorError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorErrorKind {
    /// There is nothing of this name.
    NotFound,
    /// The name or the time cannot be used, or there are too many revocations.
    Invalid,
    /// The server could not do it, or not wholly.
    Failed,
}

/// A wish to revoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeWish {
    /// What to refuse.
    pub what: Revocable,
    /// At least for this time; `None`: a name with an expiry in it until then, anything else until
    /// it is taken back.
    pub lasts: Option<Duration>,
    /// The token is for one realm only, which has a share of the table.
    pub by_tenant: bool,
}
