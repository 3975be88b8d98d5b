//! AEAD keys that protect records of TLS and DTLS.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, UnboundKey,
};
use state_format::{Malformed, Reader, Value, Writer, variants};
use zeroize::Zeroizing;

/// Length of an authentication tag in bytes, equal for all ciphers.
pub(crate) const TAG: usize = 16;

/// Length in bytes of the nonce's explicit part, in records of AES-GCM in TLS 1.2 (RFC 5288 §3).
pub(crate) const EXPLICIT: usize = 8;

/// Maximum length of a key in bytes.
const KEY_MAX: usize = 32;

/// AEAD cipher that protects records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

variants!(Cipher, "cipher of records" { 1 => Aes128Gcm, 2 => Aes256Gcm, 3 => ChaCha20Poly1305 });

impl Cipher {
    /// Prepares a key for encryption. Returns `None` if the key has the wrong length for the
    /// cipher.
    pub(crate) fn prepare(self, key: &KeyBytes) -> Option<LessSafeKey> {
        let algorithm = match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key.expose()).ok().map(LessSafeKey::new)
    }

    /// Returns the length of a key in bytes.
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns the length in bytes of the nonce's explicit part in each record of version 1.2.
    pub(crate) const fn explicit_in_12(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => EXPLICIT,
            Self::ChaCha20Poly1305 => 0,
        }
    }

    /// Returns the length in bytes of the nonce part from the handshake in version 1.2. This is the
    /// salt of AES-GCM (RFC 5288 §3), or the IV of ChaCha20-Poly1305 (RFC 7905 §2).
    pub(crate) const fn fixed_in_12(self) -> usize {
        NONCE_LEN - self.explicit_in_12()
    }
}

/// Secret key bytes, wiped from memory when dropped.
#[derive(Clone)]
pub(crate) struct KeyBytes(Zeroizing<Box<[u8]>>);

impl KeyBytes {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// Part of each nonce that records do not contain. Stored inline, without wiping: the part is
/// short, and worthless without the key.
#[derive(Clone)]
pub(crate) struct FixedPart {
    bytes: [u8; NONCE_LEN],
    len: u8,
}

impl FixedPart {
    /// Copies the part. Returns `None` if the part is longer than a nonce.
    pub(crate) fn new(part: &[u8]) -> Option<Self> {
        let mut bytes = [0; NONCE_LEN];
        bytes.get_mut(..part.len())?.copy_from_slice(part);
        Some(Self { bytes, len: part.len() as u8 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl Value for FixedPart {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(self.bytes()));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.count()?;
        Self::new(input.take(len)?).ok_or(Malformed::NoValue("part of a nonce"))
    }
}

impl Value for KeyBytes {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(self.expose()));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.count()?;
        if len > KEY_MAX {
            return Err(Malformed::NoValue("key of records"));
        }
        input.take(len).map(Self::new)
    }
}
