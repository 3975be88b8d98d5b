//! Access tokens (RFC 7635). An authorization server shares a key with this server, and issues
//! encrypted tokens. Each token contains a session key and a time, readable only by this server.
//! USERNAME names the shared key (the kid), and ACCESS-TOKEN is the token. The request's integrity
//! uses the session key (§7).
//!
//! A token is decrypted only after the nonce check of [`super::claim`]. Unauthenticated senders can
//! therefore not trigger decryption. A token does not name its user. Quotas apply to each token,
//! and any token from the authorization server is accepted.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit as _};
use sha2::{Digest as _, Sha256};
use stun_wire::{AccessTokenBlock, value};
use turn_types::{Realm, Secret, UnixSeconds};
use zeroize::Zeroizing;

use crate::credentials::{Grant, Keys, TokenKeyDigest, TokenKeys};
use crate::io::Refusal;
use crate::limits::{TOKEN_BYTES_MAX, TOKEN_MAC_KEY_BYTES_MIN};
use crate::policy::{TokenAlgorithm, TokenAuthority, TokenKey};

/// Tolerance in seconds between the clocks of this server and the authorization server (RFC 7635
/// §7: Delta).
const CLOCK_TOLERANCE_SECS: u64 = 5;

/// Length of an AES-GCM nonce in bytes (RFC 5116 §5.1).
const NONCE_LEN: usize = 12;

/// Number of bytes that coturn uses of a session key of any length: the length of an MD5 key.
pub(super) const COTURN_KEY_LEN: usize = 16;

/// Opens a token with the named key. The account of the grant identifies the token, for quotas.
pub(super) fn open(
    realm: &Realm,
    authority: &TokenAuthority,
    kid: &str,
    token: &[u8],
    now: UnixSeconds,
) -> Result<Grant, Refusal> {
    let key = authority.key(kid).ok_or(Refusal::UnknownTokenKey)?;
    let plain = decrypt(key, &authority.server_name, token).ok_or(Refusal::BadToken)?;
    let block = value::access_token_block(&plain).map_err(|_| Refusal::BadToken)?;
    if block.mac_key.len() < TOKEN_MAC_KEY_BYTES_MIN {
        return Err(Refusal::BadToken);
    }
    let keys = TokenKeys {
        kid: Arc::clone(&key.kid),
        mac: Secret::new(block.mac_key.into()),
        sealed_by: Some(digest(key)),
    };
    Ok(Grant {
        realm: realm.clone(),
        user: Arc::clone(&key.kid),
        other_spelling: None,
        renewed_by: None,
        account: account(kid, block.mac_key),
        keys: Keys::Token(keys),
        // The expiry is now or earlier if the token is expired or not yet valid.
        expires: Some(UnixSeconds(now.0.saturating_add(time_left(&block, now)))),
        allocations_max: None,
        limits: None,
        is_refuted: false,
    })
}

/// Returns true if the authority has the key that encrypted a token. Another key with the same name
/// does not match. Grants of earlier versions have no digest of the key, and only the name is
/// compared.
pub(super) fn is_accepted(authority: &TokenAuthority, token: &TokenKeys) -> bool {
    let key = authority.key(&token.kid);
    key.is_some_and(|key| token.sealed_by.is_none_or(|sealed_by| sealed_by == digest(key)))
}

fn digest(key: &TokenKey) -> TokenKeyDigest {
    let digest = match &key.algorithm {
        TokenAlgorithm::Aes128Gcm(key) => Sha256::digest(key.expose()),
        TokenAlgorithm::Aes256Gcm(key) => Sha256::digest(key.expose()),
    };
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}

/// Returns the decrypted block of a token made with this key for this server. The encryption also
/// authenticates the server's name (RFC 7635 §6.2).
fn decrypt(key: &TokenKey, server_name: &str, token: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let token = value::access_token(token).ok()?;
    let nonce: &[u8; NONCE_LEN] = token.nonce.try_into().ok()?;
    let payload = Payload { msg: token.encrypted, aad: server_name.as_bytes() };
    let plain = match &key.algorithm {
        TokenAlgorithm::Aes128Gcm(key) => {
            Aes128Gcm::new(key.expose().into()).decrypt(nonce.into(), payload)
        }
        TokenAlgorithm::Aes256Gcm(key) => {
            Aes256Gcm::new(key.expose().into()).decrypt(nonce.into(), payload)
        }
    };
    plain.ok().map(Zeroizing::new)
}

/// Returns the seconds for which a token is still valid, or 0:
/// `lifetime + Delta > abs(now - timestamp)` (RFC 7635 §7). A lifetime granted with the token is
/// never longer than the token's own lifetime (§9).
fn time_left(block: &AccessTokenBlock<'_>, now: UnixSeconds) -> u64 {
    let made = block.timestamp >> 16;
    let lifetime = u64::from(block.lifetime_secs);
    let left = (lifetime + CLOCK_TOLERANCE_SECS).saturating_sub(now.0.abs_diff(made));
    left.min(lifetime)
}

/// Returns the account of a token for quotas. All users share the kid, and the session key belongs
/// to one client.
fn account(kid: &str, mac_key: &[u8]) -> Arc<str> {
    let digest = Sha256::digest(mac_key);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    format!("{kid}#{:016x}", u64::from_be_bytes(first)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(timestamp: u64, lifetime_secs: u32, now: u64) -> u64 {
        let block =
            AccessTokenBlock { mac_key: &[0; 20], timestamp: timestamp << 16, lifetime_secs };
        time_left(&block, UnixSeconds(now))
    }

    #[test]
    fn a_token_is_good_around_its_time_and_never_longer_than_it_says() {
        for (now, expected) in [
            (10_000, 600),
            (10_001, 600), // 604 by the clocks' tolerance, 600 by its lifetime
            (10_006, 599),
            (10_604, 1),
            (10_605, 0),
            (20_000, 0),
            (9_998, 600),
            (9_396, 1),
            (9_395, 0),
            (0, 0),
        ] {
            assert_eq!(left(10_000, 600, now), expected, "{now}");
        }
        assert_eq!(left(10_000, 0, 10_000), 0, "a lifetime of nothing grants nothing");
        assert_eq!(left((1 << 48) - 1, u32::MAX, 0), 0);
    }

    #[test]
    fn tokens_of_one_key_are_different_accounts() {
        assert_ne!(account("kid", &[1; 20]), account("kid", &[2; 20]));
        assert_eq!(account("kid", &[1; 20]), account("kid", &[1; 20]));
    }
}
