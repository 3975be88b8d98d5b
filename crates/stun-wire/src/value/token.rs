//! ACCESS-TOKEN (RFC 7635 §6.2): an encrypted block that only the server and the authorization
//! server can read. The caller decrypts and encrypts.

use core::fmt;

use crate::error::ValueError;

/// Parts of ACCESS-TOKEN, still encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessToken<'a> {
    /// Nonce of the AEAD.
    pub nonce: &'a [u8],
    /// Encrypted block, and the tag of the AEAD.
    pub encrypted: &'a [u8],
}

/// Content of the encrypted block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessTokenBlock<'a> {
    /// Session key, used as the key of the integrity attributes.
    pub mac_key: &'a [u8],
    /// Time of issue: 48 bits of seconds since 1970, 16 bits of 1/64000 s.
    pub timestamp: u64,
    /// Validity in seconds.
    pub lifetime_secs: u32,
}

impl fmt::Debug for AccessTokenBlock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessTokenBlock")
            .field("mac_key", &"<secret>")
            .field("timestamp", &self.timestamp)
            .field("lifetime_secs", &self.lifetime_secs)
            .finish()
    }
}

/// Parses ACCESS-TOKEN (RFC 7635 §6.2).
///
/// # Errors
/// The value is shorter than the length field indicates.
pub fn access_token(value: &[u8]) -> Result<AccessToken<'_>, ValueError> {
    let (nonce, encrypted) = counted(value)?;
    Ok(AccessToken { nonce, encrypted })
}

/// Parses the block after decryption (RFC 7635 §6.2).
///
/// # Errors
/// The length of the block does not match the length field.
pub fn access_token_block(plain: &[u8]) -> Result<AccessTokenBlock<'_>, ValueError> {
    let (mac_key, rest) = counted(plain)?;
    let [time @ .., l0, l1, l2, l3] = super::exactly::<12>(rest)?;
    Ok(AccessTokenBlock {
        mac_key,
        timestamp: u64::from_be_bytes(time),
        lifetime_secs: u32::from_be_bytes([l0, l1, l2, l3]),
    })
}

impl AccessTokenBlock<'_> {
    /// Writes the block in the form before encryption, and returns the length in bytes. Returns
    /// `None` if `out` or the key's length field is too small.
    #[must_use]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let key_len = u16::try_from(self.mac_key.len()).ok()?;
        let end = 2 + self.mac_key.len();
        let out = out.get_mut(..end + 12)?;
        out.get_mut(..2)?.copy_from_slice(&key_len.to_be_bytes());
        out.get_mut(2..end)?.copy_from_slice(self.mac_key);
        out.get_mut(end..end + 8)?.copy_from_slice(&self.timestamp.to_be_bytes());
        out.get_mut(end + 8..)?.copy_from_slice(&self.lifetime_secs.to_be_bytes());
        Some(end + 12)
    }
}

/// Splits a value into the bytes counted by a 16-bit length prefix, and the remaining bytes.
fn counted(value: &[u8]) -> Result<(&[u8], &[u8]), ValueError> {
    let (&len, rest) = value.split_first_chunk::<2>().ok_or(ValueError::Length)?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(len))).ok_or(ValueError::Length)
}
