//! Traits of a back end, and the values that back ends exchange.

use std::pin::Pin;
use std::sync::Arc;

use stun_wire::{
    UserName, long_term_key_md5, long_term_key_md5_unprepared, long_term_key_sha256, opaque_string,
    userhash,
};
use turn_types::Secret;

use crate::error::StoreError;
use crate::limits::{IN_FLIGHT_MAX, PASSWORD_BYTES_MAX, REALM_BYTES_MAX};

/// Look-up in progress. Dropping the future cancels the look-up.
pub type Lookup<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Asynchronous look-ups of users, for the server.
///
/// Any number of look-ups may be in flight. No call blocks, and the caller sets the deadline. All
/// calls are made from one thread, within a tokio runtime. Opening a reader does not wait for a
/// network.
///
/// Names and realms are compared byte by byte. Both sides have prepared them as OpaqueString (RFC
/// 8265 §4.2).
pub trait UserReader: Send {
    /// Looks up a user.
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>>;

    /// Returns a number that differs from the last returned number if users have changed in
    /// between.
    fn revision(&self) -> Lookup<u64>;

    /// Returns the maximum number of look-ups that the store serves concurrently. Further look-ups
    /// wait before their deadline starts: a limit of this process is not an outage of the store.
    fn concurrent_max(&self) -> usize {
        IN_FLIGHT_MAX
    }

    /// Returns true if each change currently causes a new revision. Otherwise answers are valid
    /// only for a short time.
    fn reports_changes(&self) -> bool {
        true
    }
}

/// Changes and lists of users, for commands and for the start of the server. All functions block.
///
/// # Errors
/// All functions return errors of the store.
pub trait UserEditor {
    /// Adds a user. Returns [`StoreError::Exists`] if the realm has a user with this name.
    fn add(&mut self, user: &NewUser) -> Result<(), StoreError>;

    /// Adds a user, or replaces the keys and the limit of the user with this name. Returns true if
    /// the user existed.
    fn replace(&mut self, user: &NewUser) -> Result<bool, StoreError>;

    /// Replaces the keys of the user with this name. Returns true if the user exists.
    fn set_keys(&mut self, user: &NewUser) -> Result<bool, StoreError>;

    /// Sets the limit of a user's allocations, as in [`UserRecord`]. Returns true if the user
    /// exists.
    fn set_allocations_max(
        &mut self,
        realm: &str,
        name: &str,
        allocations_max: Option<u32>,
    ) -> Result<bool, StoreError>;

    /// Deletes a user. Returns true if the user existed. Existing allocations expire at their next
    /// refresh.
    fn delete(&mut self, realm: &str, name: &str) -> Result<bool, StoreError>;

    /// Looks up a user.
    fn user(&mut self, realm: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError>;

    /// Returns a page of users, sorted by realm and name.
    fn list(&mut self, page: &Page) -> Result<Vec<UserSummary>, StoreError>;

    /// Returns at most `REALMS_MAX` realms with their number of users, sorted by that number, the
    /// largest first.
    fn realms(&mut self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Returns true if a realm has a user with only an MD5 key.
    fn has_md5_only(&mut self, realm: &str) -> Result<bool, StoreError>;
}

/// Key of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserQuery {
    /// Look-up by USERNAME.
    Name(Arc<str>),
    /// Look-up by USERHASH: SHA-256 of `name:realm` (RFC 8489 §14.4).
    Hash([u8; 32]),
}

/// Long-term keys of a user (RFC 8489 §9.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKeys {
    /// MD5(name ":" realm ":" password).
    pub md5: Secret<[u8; 16]>,
    /// SHA-256(name ":" realm ":" password). Absent for users imported from a database with only
    /// MD5 keys.
    pub sha256: Option<Secret<[u8; 32]>>,
}

/// User data for authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// Name in clear text, also after a look-up by hash.
    pub name: Arc<str>,
    /// Long-term keys.
    pub keys: UserKeys,
    /// Maximum number of allocations, instead of `quotas.allocations_per_user`; 0 means no limit.
    pub allocations_max: Option<u32>,
}

/// User data for lists, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    /// Realm of the user.
    pub realm: String,
    /// Name of the user.
    pub name: String,
    /// Maximum number of allocations, as in [`UserRecord`].
    pub allocations_max: Option<u32>,
    /// Time of addition, in seconds since 1970. `None` if the database does not store the time.
    pub created: Option<u64>,
}

/// Request for one page of the list of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Realm of the users; `None` selects all realms.
    pub realm: Option<String>,
    /// Last user of the previous page.
    pub after: Option<Position>,
    /// Maximum number of users.
    pub limit: u32,
}

/// Position in the list of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Realm of the user.
    pub realm: String,
    /// Name of the user.
    pub name: String,
}

/// User to be added: name and realm are prepared, keys are derived, and the password is not
/// retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    pub(crate) realm: String,
    pub(crate) name: String,
    pub(crate) keys: UserKeys,
    pub(crate) userhash: [u8; 32],
    pub(crate) allocations_max: Option<u32>,
}

impl NewUser {
    /// Derives the keys of a user.
    ///
    /// # Errors
    /// [`StoreError::Name`], [`StoreError::Realm`] or [`StoreError::Password`]: the value is empty,
    /// too long, or not allowed by OpaqueString (control characters, unassigned code points).
    pub fn new(
        realm: &str,
        name: &str,
        password: &Secret<String>,
        allocations_max: Option<u32>,
    ) -> Result<Self, StoreError> {
        let realm = prepared(realm, REALM_BYTES_MAX).map_err(|what| StoreError::Realm { what })?;
        let name = prepared_name(name)?;
        let password = prepared(password.expose(), PASSWORD_BYTES_MAX)
            .map_err(|what| StoreError::Password { what })?;
        let refused = |_| StoreError::Password { what: NOT_ALLOWED.to_owned() };
        Ok(Self {
            keys: UserKeys {
                md5: Secret::new(long_term_key_md5(&name, &realm, &password).map_err(refused)?),
                sha256: Some(Secret::new(
                    long_term_key_sha256(&name, &realm, &password).map_err(refused)?,
                )),
            },
            userhash: userhash(&name, &realm).map_err(refused)?,
            realm,
            name,
            allocations_max,
        })
    }

    /// Creates a user from an MD5 key of another server, derived from name, realm and password.
    /// Clients of this user cannot use SHA-256.
    ///
    /// # Errors
    /// Fails for the reasons of [`NewUser::new`].
    pub fn with_md5(
        realm: &str,
        name: &str,
        md5: Secret<[u8; 16]>,
        allocations_max: Option<u32>,
    ) -> Result<Self, StoreError> {
        Self::with_keys(realm, name, UserKeys { md5, sha256: None }, allocations_max)
    }

    /// Creates a user with the key that coturn derives from the bytes of an unprepared password.
    /// Clients of this user cannot use SHA-256.
    ///
    /// # Errors
    /// Fails for the reasons of [`NewUser::new`].
    pub fn with_unprepared(
        realm: &str,
        name: &str,
        password: &Secret<Vec<u8>>,
    ) -> Result<Self, StoreError> {
        let md5 = long_term_key_md5_unprepared(name, realm, password.expose());
        Self::with_md5(realm, name, Secret::new(md5), None)
    }

    /// Creates a user with existing keys, derived from this name and realm.
    ///
    /// # Errors
    /// Fails for the reasons of [`NewUser::new`].
    pub fn with_keys(
        realm: &str,
        name: &str,
        keys: UserKeys,
        allocations_max: Option<u32>,
    ) -> Result<Self, StoreError> {
        let realm = prepared(realm, REALM_BYTES_MAX).map_err(|what| StoreError::Realm { what })?;
        let name = prepared_name(name)?;
        let refused = |_| StoreError::Name { what: NOT_ALLOWED.to_owned() };
        let userhash = userhash(&name, &realm).map_err(refused)?;
        Ok(Self { keys, userhash, realm, name, allocations_max })
    }

    /// Returns the prepared name, as the user must send it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the keys, derived from name, realm and password.
    #[must_use]
    pub const fn keys(&self) -> &UserKeys {
        &self.keys
    }

    /// Returns the maximum number of allocations, as in [`UserRecord`].
    #[must_use]
    pub const fn allocations_max(&self) -> Option<u32> {
        self.allocations_max
    }

    /// Returns the prepared realm.
    #[must_use]
    pub fn realm(&self) -> &str {
        &self.realm
    }
}

/// Converts a name to the form in which names are stored and looked up ([`UserName`]).
///
/// # Errors
/// [`StoreError::Name`], for the reasons of [`NewUser::new`].
pub fn prepared_name(name: &str) -> Result<String, StoreError> {
    let name = UserName::new(name).map_err(|error| StoreError::Name { what: error.to_string() })?;
    Ok(name.into_string())
}

const NOT_ALLOWED: &str =
    "has a character that RFC 8265 does not allow, such as a control character";

fn prepared(text: &str, bytes_max: usize) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    let prepared = opaque_string(text).map_err(|_| NOT_ALLOWED.to_owned())?;
    if prepared.len() > bytes_max {
        return Err(format!("has {} bytes, and the most is {bytes_max}", prepared.len()));
    }
    Ok(prepared.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(realm: &str, name: &str, password: &str) -> Result<NewUser, String> {
        NewUser::new(realm, name, &Secret::new(password.to_owned()), None)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_those_of_rfc_8489() {
        // RFC 8489 §9.2.2: MD5("user:realm:pass").
        let user = user("realm", "user", "pass").unwrap();
        assert_eq!(
            *user.keys.md5.expose(),
            [
                0x84, 0x93, 0xfb, 0xc5, 0x3b, 0xa5, 0x82, 0xfb, 0x4c, 0x04, 0x4c, 0x45, 0x6b, 0xdc,
                0x40, 0xeb
            ]
        );
    }

    #[test]
    fn names_are_prepared_as_opaque_strings() {
        // A decomposed and a composed "é" are one name, and a wide space is a space.
        assert_eq!(user("r", "caf\u{65}\u{301}", "p"), user("r", "caf\u{e9}", "p"));
        assert_eq!(user("r", "a\u{3000}b", "p").unwrap().name(), "a b");
        assert_eq!(prepared_name("a\u{3000}b").unwrap(), "a b");
    }

    #[test]
    fn slips_are_named() {
        for (realm, name, password, error) in [
            ("", "n", "p", "the realm is empty"),
            ("r", "", "p", "the name is empty"),
            ("r", "n", "", "the password is empty"),
            (
                "r",
                "a\nb",
                "p",
                "the name has a character that RFC 8265 does not allow, such as a control character",
            ),
            ("r", &"n".repeat(509), "p", "the name has 509 bytes, and the most is 508"),
            ("r", "n", &"p".repeat(1025), "the password has 1025 bytes, and the most is 1024"),
        ] {
            assert_eq!(user(realm, name, password), Err(error.to_owned()));
        }
    }
}
