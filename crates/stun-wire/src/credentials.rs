//! Derivation of keys from names and passwords (RFC 8489 §9.2.2, §14.4, §18.5.1).

use alloc::string::String;
use core::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::Mac as _;
use md5::{Digest as _, Md5};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

use crate::integrity::keyed_sha1;
use crate::opaque_string::{PrecisError, opaque_string};

/// Both long-term keys of a user in a realm. A server needs to store nothing else of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct LongTermKeys {
    /// MD5 key, for requests without PASSWORD-ALGORITHM, or with MD5 (RFC 8489 §18.5.1.1).
    pub md5: [u8; 16],
    /// SHA-256 key, for requests with PASSWORD-ALGORITHM SHA-256 (RFC 8489 §18.5.1.2).
    pub sha256: [u8; 32],
}

impl LongTermKeys {
    /// Derives both keys of a user.
    ///
    /// # Errors
    /// Realm or password cannot be converted to an OpaqueString.
    pub fn new(username: &str, realm: &str, password: &str) -> Result<Self, PrecisError> {
        Ok(Self {
            md5: long_term_key_md5(username, realm, password)?,
            sha256: long_term_key_sha256(username, realm, password)?,
        })
    }
}

impl Drop for LongTermKeys {
    fn drop(&mut self) {
        self.md5.zeroize();
        self.sha256.zeroize();
    }
}

impl fmt::Debug for LongTermKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LongTermKeys(<secret>)")
    }
}

/// Derives the 16-byte key of a long-term credential (RFC 8489 §9.2.2): MD5 of
/// `username:realm:password`.
///
/// Quotes around username and realm, and trailing NULs of all three, are removed. Realm and
/// password are converted to OpaqueStrings. The username is used as received, because the sender
/// has already converted it.
///
/// # Errors
/// Realm or password cannot be converted to an OpaqueString.
pub fn long_term_key_md5(
    username: &str,
    realm: &str,
    password: &str,
) -> Result<[u8; 16], PrecisError> {
    let mut hash = Md5::new();
    hash_credential(username, realm, password, |piece| hash.update(piece))?;
    Ok(hash.finalize().into())
}

/// Derives the long-term key (RFC 8489 §9.2.2) of an unprepared name and password, as servers and
/// clients without PRECIS do. Equal to [`long_term_key_md5`] for ASCII.
#[must_use]
pub fn long_term_key_md5_unprepared(username: &str, realm: &str, password: &[u8]) -> [u8; 16] {
    let mut hash = Md5::new();
    for piece in [username.as_bytes(), b":", realm.as_bytes(), b":", password] {
        hash.update(piece);
    }
    hash.finalize().into()
}

/// Derives the 32-byte key of a long-term credential (RFC 8489 §18.5.1.2): SHA-256 of the text
/// described at [`long_term_key_md5`].
///
/// # Errors
/// Realm or password cannot be converted to an OpaqueString.
pub fn long_term_key_sha256(
    username: &str,
    realm: &str,
    password: &str,
) -> Result<[u8; 32], PrecisError> {
    let mut hash = Sha256::new();
    hash_credential(username, realm, password, |piece| hash.update(piece))?;
    Ok(hash.finalize().into())
}

fn hash_credential(
    username: &str,
    realm: &str,
    password: &str,
    mut hash: impl FnMut(&[u8]),
) -> Result<(), PrecisError> {
    let realm = opaque_string(unquoted(realm))?;
    // A separate copy is always wiped, whether or not the profile changed the text.
    let password = Zeroizing::new(opaque_string(without_nuls(password))?.into_owned());
    hash(unquoted(username).as_bytes());
    hash(b":");
    hash(realm.as_bytes());
    hash(b":");
    hash(password.as_bytes());
    Ok(())
}

/// Derives USERHASH (RFC 8489 §14.4): SHA-256 of `username:realm`, both as OpaqueStrings.
///
/// # Errors
/// Username or realm cannot be converted to an OpaqueString.
pub fn userhash(username: &str, realm: &str) -> Result<[u8; 32], PrecisError> {
    let username = opaque_string(username)?;
    let realm = opaque_string(realm)?;
    let mut hash = Sha256::new();
    hash.update(username.as_bytes());
    hash.update(b":");
    hash.update(realm.as_bytes());
    Ok(hash.finalize().into())
}

/// Derives the password of a time-limited credential: base64 of HMAC-SHA1 of the username. The key
/// is the secret shared by server and web service (draft-uberti-behave-turn-rest §2.2).
///
/// The username contains the expiry, which this function does not check.
#[must_use]
pub fn time_limited_password(secret: &[u8], username: &str) -> String {
    let mut mac = keyed_sha1(secret);
    mac.update(username.as_bytes());
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

/// Removes trailing NULs, and one pair of surrounding double quotes.
fn unquoted(text: &str) -> &str {
    let text = without_nuls(text);
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn without_nuls(text: &str) -> &str {
    text.trim_end_matches('\0')
}
