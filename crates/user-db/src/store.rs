//! The traits of a back end, and the values they exchange.

use std::pin::Pin;
use std::sync::Arc;

use stun_wire::{
    UserName, long_term_key_md5, long_term_key_md5_unprepared, long_term_key_sha256, opaque_string,
    userhash,
};
use turn_types::Secret;

use crate::error::StoreError;
use crate::limits::{IN_FLIGHT_MAX, PASSWORD_BYTES_MAX, REALM_BYTES_MAX};

/// A look-up that is under way. Dropping it gives it up.
pub type Lookup<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Looks users up for the server. Any number of look-ups may be in flight; none blocks its caller,
/// and the caller sets the deadline. Calls come from one thread, within a tokio runtime; opening a
/// reader does not wait for a network. Names and realms are compared byte by byte: both sides
/// prepare them as OpaqueString (RFC 8265 §4.2) before.
pub trait UserReader: Send {
    /// Looks a user up.
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>>;

    /// A number that differs from the last one when users have changed in between.
    fn revision(&self) -> Lookup<u64>;

    /// Maximum number of look-ups that the store serves at the same time. Further ones wait before
    /// their deadline starts: a limit of this process is not an outage of the store.
    fn concurrent_max(&self) -> usize {
        IN_FLIGHT_MAX
    }

    /// Returns whether each change makes another revision now. Where it does not, answers are good
    /// for a short time.
    fn reports_changes(&self) -> bool {
        true
    }
}

/// Changes and lists users for commands and at the start of the server. It blocks.
///
/// # Errors
/// Errors of the store, in all functions.
pub trait UserEditor {
    /// Adds a user; [`StoreError::Exists`] when the realm has one of this name.
    fn add(&mut self, user: &NewUser) -> Result<(), StoreError>;

    /// Adds a user, or replaces keys and limit of the one of this name; returns whether there was
    /// one.
    fn replace(&mut self, user: &NewUser) -> Result<bool, StoreError>;

    /// Replaces the keys of the user of this name; returns whether there is one.
    fn set_keys(&mut self, user: &NewUser) -> Result<bool, StoreError>;

    /// Sets the limit of a user's allocations, as in [`UserRecord`]; returns whether there is this
    /// user.
    fn set_allocations_max(
        &mut self,
        realm: &str,
        name: &str,
        allocations_max: Option<u32>,
    ) -> Result<bool, StoreError>;

    /// Deletes a user; returns whether there was one. Existing allocations end at their next
    /// refresh.
    fn delete(&mut self, realm: &str, name: &str) -> Result<bool, StoreError>;

    /// Looks a user up.
    fn user(&mut self, realm: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError>;

    /// Users in the order of realm and name.
    fn list(&mut self, page: &Page) -> Result<Vec<UserSummary>, StoreError>;

    /// Realms and the number of their users, the largest first; at most `REALMS_MAX`.
    fn realms(&mut self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Returns whether a realm has a user with an MD5 key only.
    fn has_md5_only(&mut self, realm: &str) -> Result<bool, StoreError>;
}

/// Key of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserQuery {
    /// By USERNAME.
    Name(Arc<str>),
    /// By USERHASH: SHA-256 of `name:realm` (RFC 8489 §14.4).
    Hash([u8; 32]),
}

/// The long-term keys of a user (RFC 8489 §9.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKeys {
    /// MD5(name ":" realm ":" password).
    pub md5: Secret<[u8; 16]>,
    /// SHA-256 of the same; absent for users imported from a database with MD5 keys only.
    pub sha256: Option<Secret<[u8; 32]>>,
}

/// A user, for authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// The name in clear, also when it was looked up by its hash.
    pub name: Arc<str>,
    /// The keys.
    pub keys: UserKeys,
    /// Limit of allocations, instead of `quotas.allocations_per_user`; 0 is no limit.
    pub allocations_max: Option<u32>,
}

/// A user, for lists: without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    /// The realm.
    pub realm: String,
    /// The name.
    pub name: String,
    /// As in [`UserRecord`].
    pub allocations_max: Option<u32>,
    /// Time of addition, in seconds since 1970; `None` where the database does not keep it.
    pub created: Option<u64>,
}

/// Part of the list of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The realm; `None`: all.
    pub realm: Option<String>,
    /// The last user of the page before.
    pub after: Option<Position>,
    /// Maximum number of users.
    pub limit: u32,
}

/// A place in the list of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The realm.
    pub realm: String,
    /// The name.
    pub name: String,
}

/// A user to be added: name and realm prepared, keys made, the password forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    pub(crate) realm: String,
    pub(crate) name: String,
    pub(crate) keys: UserKeys,
    pub(crate) userhash: [u8; 32],
    pub(crate) allocations_max: Option<u32>,
}

impl NewUser {
    /// Makes the keys of a user.
    ///
    /// # Errors
    /// [`StoreError::Name`], [`StoreError::Realm`] or [`StoreError::Password`] when one of them is
    /// empty, too long, or not allowed by OpaqueString (control characters, unassigned code
    /// points).
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

    /// A user with a key that another server made, as MD5 of name, realm and password; its clients
    /// cannot use SHA-256.
    ///
    /// # Errors
    /// As [`NewUser::new`].
    pub fn with_md5(
        realm: &str,
        name: &str,
        md5: Secret<[u8; 16]>,
        allocations_max: Option<u32>,
    ) -> Result<Self, StoreError> {
        Self::with_keys(realm, name, UserKeys { md5, sha256: None }, allocations_max)
    }

    /// A user with the key that coturn makes of a password: of its bytes as they are. Its clients
    /// cannot use SHA-256.
    ///
    /// # Errors
    /// As [`NewUser::new`].
    pub fn with_unprepared(
        realm: &str,
        name: &str,
        password: &Secret<Vec<u8>>,
    ) -> Result<Self, StoreError> {
        let md5 = long_term_key_md5_unprepared(name, realm, password.expose());
        Self::with_md5(realm, name, Secret::new(md5), None)
    }

    /// A user with keys that exist already, made from this name and realm.
    ///
    /// # Errors
    /// As [`NewUser::new`].
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

    /// The prepared name, as the user has to send it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys, made from name, realm and password.
    #[must_use]
    pub const fn keys(&self) -> &UserKeys {
        &self.keys
    }

    /// Limit of allocations, as in [`UserRecord`].
    #[must_use]
    pub const fn allocations_max(&self) -> Option<u32> {
        self.allocations_max
    }

    /// The prepared realm.
    #[must_use]
    pub fn realm(&self) -> &str {
        &self.realm
    }
}

/// Brings a name into the form in which it is stored and looked up ([`UserName`]).
///
/// # Errors
/// [`StoreError::Name`], as [`NewUser::new`].
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
