//! Keys that protect records of TLS and DTLS.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, UnboundKey,
};
use state_format::{Malformed, Reader, Value, Writer, variants};
use zeroize::Zeroizing;

/// Length of the tag of each cipher.
pub(crate) const TAG: usize = 16;

/// Length of the explicit part of the nonce, in records of AES-GCM in TLS 1.2 (RFC 5288 §3).
pub(crate) const EXPLICIT: usize = 8;

/// Length of the longest key.
const KEY_MAX: usize = 32;

/// AEAD that protects records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

variants!(Cipher, "cipher of records" { 1 => Aes128Gcm, 2 => Aes256Gcm, 3 => ChaCha20Poly1305 });

impl Cipher {
    /// Prepares a key; `None` for one of another length.
    pub(crate) fn prepare(self, key: &KeyBytes) -> Option<LessSafeKey> {
        let algorithm = match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key.expose()).ok().map(LessSafeKey::new)
    }

    /// Length of a key.
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Length of the explicit part of the nonce in each record of version 1.2.
    pub(crate) const fn explicit_in_12(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => EXPLICIT,
            Self::ChaCha20Poly1305 => 0,
        }
    }

    /// Length of the nonce part from the handshake in version 1.2: the salt of AES-GCM (RFC 5288
    /// §3), the IV of ChaCha20-Poly1305 (RFC 7905 §2).
    pub(crate) const fn fixed_in_12(self) -> usize {
        NONCE_LEN - self.explicit_in_12()
    }
}

/// Secret bytes, wiped when dropped.
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

/// Part of each nonce that is not in the record. Inline: it is short, and worth nothing without the
/// key.
#[derive(Clone)]
pub(crate) struct FixedPart {
    bytes: [u8; NONCE_LEN],
    len: u8,
}

impl FixedPart {
    /// `None`: it is longer than a nonce.
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
