//! HMACs of MESSAGE-INTEGRITY and MESSAGE-INTEGRITY-SHA256 (RFC 8489 §14.5, §14.6).

use alloc::boxed::Box;
use core::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of an HMAC-SHA1 in bytes.
pub(crate) const SHA1_LEN: usize = 20;
/// Length of an HMAC-SHA256 in bytes. RFC 8489 §14.6 permits usages to truncate it, but TURN does
/// not.
pub(crate) const SHA256_LEN: usize = 32;

/// Kind of integrity attribute in a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntegrityKind {
    /// MESSAGE-INTEGRITY: HMAC-SHA1, 20 bytes.
    Sha1,
    /// MESSAGE-INTEGRITY-SHA256: HMAC-SHA256, 32 bytes.
    Sha256,
}

/// Key for both HMACs. Wiped from memory when dropped, and never shown by `Debug`.
#[derive(Clone)]
pub struct IntegrityKey {
    raw: Zeroizing<Box<[u8]>>,
    sha1: Option<Hmac<Sha1>>,
    sha256: Option<Hmac<Sha256>>,
}

impl IntegrityKey {
    /// Creates a key from raw bytes of any length. A long-term credential has a key of 16 bytes
    /// (MD5) or 32 bytes (SHA-256). The key of a short-term credential is the password (RFC 8489
    /// §9.1.1).
    ///
    /// The keyed states of both HMACs are computed and stored. This costs four hash blocks once,
    /// and saves two per message.
    #[must_use]
    pub fn new(raw: &[u8]) -> Self {
        let (sha1, sha256) = (Some(keyed_sha1(raw)), Some(keyed_sha256(raw)));
        Self { raw: Zeroizing::new(raw.into()), sha1, sha256 }
    }

    /// Creates a key for a message that may be forged, and for the response. No keyed state is
    /// computed in advance, so a failed verification computes only the message's HMAC.
    #[must_use]
    pub fn for_one_exchange(raw: &[u8]) -> Self {
        Self { raw: Zeroizing::new(raw.into()), sha1: None, sha256: None }
    }

    /// Returns the raw bytes of the key.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(crate) fn hmac_sha1(&self, parts: &[&[u8]]) -> [u8; SHA1_LEN] {
        let mut mac = self.sha1.clone().unwrap_or_else(|| keyed_sha1(&self.raw));
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    pub(crate) fn hmac_sha256(&self, parts: &[&[u8]]) -> [u8; SHA256_LEN] {
        let mut mac = self.sha256.clone().unwrap_or_else(|| keyed_sha256(&self.raw));
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for IntegrityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntegrityKey(<secret>)")
    }
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 §2)")]
pub(crate) fn keyed_sha1(key: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 §2)")]
fn keyed_sha256(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}
