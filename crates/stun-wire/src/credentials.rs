//! From names and passwords to keys (RFC 8489 §9.2.2, §14.4, §18.5.1).

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

/// Both long-term keys of a user in a realm: all a server needs to keep of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct LongTermKeys {
    /// For requests without PASSWORD-ALGORITHM, or with MD5 (RFC 8489 §18.5.1.1).
    pub md5: [u8; 16],
    /// For requests with PASSWORD-ALGORITHM SHA-256 (RFC 8489 §18.5.1.2).
    pub sha256: [u8; 32],
}

impl LongTermKeys {
    /// Both keys of a user.
    ///
    /// # Errors
    /// Realm or password cannot be an OpaqueString.
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

/// The 16-byte key of a long-term credential (RFC 8489 §9.2.2): MD5 of `username:realm:password`.
///
/// Quotes around username and realm, and NULs behind any of the three, are removed; realm and
/// password become OpaqueStrings. The username is taken as received, since its sender has done
/// that.
///
/// # Errors
/// Realm or password cannot be an OpaqueString.
pub fn long_term_key_md5(
    username: &str,
    realm: &str,
    password: &str,
) -> Result<[u8; 16], PrecisError> {
    let mut hash = Md5::new();
    hash_credential(username, realm, password, |piece| hash.update(piece))?;
    Ok(hash.finalize().into())
}

/// Long-term key (RFC 8489 §9.2.2) of an unprepared name and password, as servers and clients
/// without PRECIS compute the key. Equal to [`long_term_key_md5`] for ASCII.
#[must_use]
pub fn long_term_key_md5_unprepared(username: &str, realm: &str, password: &[u8]) -> [u8; 16] {
    let mut hash = Md5::new();
    for piece in [username.as_bytes(), b":", realm.as_bytes(), b":", password] {
        hash.update(piece);
    }
    hash.finalize().into()
}

/// The 32-byte key of a long-term credential (RFC 8489 §18.5.1.2): SHA-256 of the same text as for
/// [`long_term_key_md5`].
///
/// # Errors
/// Realm or password cannot be an OpaqueString.
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
    // A copy of ours, so that it can be wiped whether or not the profile changed it.
    let password = Zeroizing::new(opaque_string(without_nuls(password))?.into_owned());
    hash(unquoted(username).as_bytes());
    hash(b":");
    hash(realm.as_bytes());
    hash(b":");
    hash(password.as_bytes());
    Ok(())
}

/// USERHASH (RFC 8489 §14.4): SHA-256 of `username:realm`, both as OpaqueStrings.
///
/// # Errors
/// Username or realm cannot be an OpaqueString.
pub fn userhash(username: &str, realm: &str) -> Result<[u8; 32], PrecisError> {
    let username = opaque_string(username)?;
    let realm = opaque_string(realm)?;
    let mut hash = Sha256::new();
    hash.update(username.as_bytes());
    hash.update(b":");
    hash.update(realm.as_bytes());
    Ok(hash.finalize().into())
}

/// The password of a time-limited credential: base64 of HMAC-SHA1 of the username, keyed with the
/// secret that server and web service share (draft-uberti-behave-turn-rest §2.2).
///
/// The username carries the expiry; this does not look at it.
#[must_use]
pub fn time_limited_password(secret: &[u8], username: &str) -> String {
    let mut mac = keyed_sha1(secret);
    mac.update(username.as_bytes());
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

/// Without NULs behind and one pair of double quotes around.
fn unquoted(text: &str) -> &str {
    let text = without_nuls(text);
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn without_nuls(text: &str) -> &str {
    text.trim_end_matches('\0')
}
