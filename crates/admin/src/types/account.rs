//! Users of the database.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/accounts`: users of a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accounts {
    /// The realm.
    pub realm: String,
    /// Users in the order of their names.
    pub accounts: Vec<Account>,
    /// The parameter `after` of the next page; left out at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A user of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Limit of its live allocations, 0 for none; left out for the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations_max: Option<u32>,
    /// Time of addition, in seconds since 1970; left out where the database does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix: Option<u64>,
}

/// Body of `POST /v1/accounts`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddAccount {
    /// Its name.
    pub name: String,
    /// Its realm; by default that of the token, or the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Its password, of 8 characters or more; by default one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Limit of its live allocations, 0 for none; by default the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations_max: Option<u32>,
    /// A user of this name gets the new password and limit; by default it is refused.
    #[serde(default)]
    pub replace: bool,
}

/// A user that was added.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedAccount {
    /// Its realm.
    pub realm: String,
    /// Its name.
    pub name: String,
    /// The password that was made; it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// True if there was a user of this name.
    pub replaced: bool,
}

/// Body of `DELETE /v1/accounts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteAccount {
    /// Its name.
    pub name: String,
    /// Its realm; by default that of the token, or the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Ends its live allocations, which else end at their next refresh.
    #[serde(default)]
    pub end_sessions: bool,
}

/// A user that was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedAccount {
    /// Its realm.
    pub realm: String,
    /// Its name.
    pub name: String,
    /// Live allocations that were ended.
    pub ended: u64,
}

/// Body of `POST /v1/accounts/forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetAccounts {
    /// Names of the changed users.
    pub names: Vec<String>,
    /// Their realm; by default that of the token, or the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
}

/// Users forgotten until the next look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForgottenAccounts {
    /// Their realm.
    pub realm: String,
    /// Number of names.
    pub forgotten: u64,
}
