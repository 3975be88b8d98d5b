//! Users of the database, which the binary opens.

use std::fmt;

use turn_types::Secret;

/// A user, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountEntry {
    /// The name.
    pub name: String,
    /// Limit of its live allocations; 0 is no limit, `None` the configured one.
    pub allocations_max: Option<u32>,
    /// Time of addition, in seconds since 1970, where the database keeps it.
    pub created_unix: Option<u64>,
}

/// A user to add.
#[derive(Debug)]
pub struct AccountWish {
    /// The realm.
    pub realm: String,
    /// The name.
    pub name: String,
    /// The password; `None` has one made.
    pub password: Option<Secret<String>>,
    /// As in [`AccountEntry`].
    pub allocations_max: Option<u32>,
    /// A user of this name gets this password and limit, instead of [`AccountError::Exists`].
    pub replaces: bool,
}

/// A user that was added.
#[derive(Debug)]
pub struct AddedAccount {
    /// The name as it was prepared (RFC 8265).
    pub name: String,
    /// The password, if it was made.
    pub generated: Option<Secret<String>>,
    /// There was a user of this name.
    pub replaced: bool,
}

/// Error of an operation with users; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The realm has a user of this name.
    #[error("there is a user \"{0}\" in this realm already")]
    Exists(String),
    /// A name, a realm, a password or a limit cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The database failed.
    #[error("{0}")]
    Failed(String),
}

/// The users of a database. All functions block until it has answered.
///
/// # Errors
/// [`AccountError`], in all functions.
pub trait Accounts: fmt::Debug + Send + Sync {
    /// Users of a realm in the order of their names, behind the name `after`.
    fn list(
        &self,
        realm: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AccountEntry>, AccountError>;

    /// Adds a user, who can log in within a second.
    fn add(&self, wish: AccountWish) -> Result<AddedAccount, AccountError>;

    /// Deletes a user, who can log in no more within a second. Returns its name as prepared; `None`
    /// if there is none.
    fn delete(&self, realm: &str, name: &str) -> Result<Option<String>, AccountError>;
}
