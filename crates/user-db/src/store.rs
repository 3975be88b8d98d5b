//! What a back end does, and the words it is asked and answered in.

use std::sync::Arc;

use stun_wire::{long_term_key_md5, long_term_key_sha256, opaque_string, userhash};
use turn_types::Secret;

use crate::error::StoreError;
use crate::limits::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX, REALM_BYTES_MAX};

/// Keeps users. Names and realms are compared byte by byte: both sides prepare them as OpaqueString
/// (RFC 8265 §4.2) before they get here.
pub trait UserStore: Send {
    /// Adds a user.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the realm has one of this name; otherwise the store's own.
    fn add(&mut self, user: &NewUser) -> Result<(), StoreError>;

    /// Adds a user, or gives the one of this name new keys and a new limit; whether there was one.
    ///
    /// # Errors
    /// The store's own.
    fn replace(&mut self, user: &NewUser) -> Result<bool, StoreError>;

    /// Deletes a user; whether there was one. Allocations that exist go on for what they were granted.
    ///
    /// # Errors
    /// The store's own.
    fn delete(&mut self, realm: &str, name: &str) -> Result<bool, StoreError>;

    /// Users in the order of realm and name.
    ///
    /// # Errors
    /// The store's own.
    fn list(&mut self, page: &Page) -> Result<Vec<UserSummary>, StoreError>;

    /// Looks a user up.
    ///
    /// # Errors
    /// The store's own.
    fn find(&mut self, realm: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError>;

    /// Whether a realm has a user of whom only the MD5 key is known.
    ///
    /// # Errors
    /// The store's own.
    fn has_md5_only(&mut self, realm: &str) -> Result<bool, StoreError>;

    /// A number that has changed when somebody else (another handle, another process) changed a
    /// user since it was last asked.
    ///
    /// # Errors
    /// The store's own.
    fn revision(&mut self) -> Result<u64, StoreError>;
}

/// How a user is looked up.
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
    /// SHA-256 of the same; absent for users taken over from a database that only has MD5 keys.
    pub sha256: Option<Secret<[u8; 32]>>,
}

/// A user as the server needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// The name in clear, also when it was looked up by its hash.
    pub name: Arc<str>,
    /// The keys.
    pub keys: UserKeys,
    /// How many allocations this user may have, instead of `quotas.allocations_per_user`; 0 is any
    /// number.
    pub allocations_max: Option<u32>,
}

/// A user as lists show it: nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    /// The realm.
    pub realm: String,
    /// The name.
    pub name: String,
    /// As in [`UserRecord`].
    pub allocations_max: Option<u32>,
    /// When the user was added, in seconds since 1970.
    pub created: u64,
}

/// Which users to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of this realm; `None`: of all.
    pub realm: Option<String>,
    /// Those behind this realm and name, which were the last of the page before.
    pub after: Option<(String, String)>,
    /// At most so many.
    pub limit: u32,
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
    /// empty, too long, or not allowed by OpaqueString (control characters, unassigned code points).
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

    /// The name, as it was prepared: what the user has to send.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys, made from name, realm and password.
    #[must_use]
    pub const fn keys(&self) -> &UserKeys {
        &self.keys
    }

    /// The realm, as it was prepared.
    #[must_use]
    pub fn realm(&self) -> &str {
        &self.realm
    }
}

/// A name as it is stored and as users send it: in the form of an OpaqueString (RFC 8265 §4.2).
///
/// # Errors
/// [`StoreError::Name`], as [`NewUser::new`].
pub fn prepared_name(name: &str) -> Result<String, StoreError> {
    prepared(name, NAME_BYTES_MAX).map_err(|what| StoreError::Name { what })
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
