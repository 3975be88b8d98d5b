//! Derivation of session keys from the secrets of a handshake (RFC 5246 §6.3).

use aws_lc_rs::tls_prf::{Algorithm, P_SHA256, P_SHA384, Secret};
use state_format::fields;

use crate::aead::{Cipher, FixedPart, KeyBytes};

/// Lengths in bytes of the master secret, and of a random.
pub(super) const MASTER_SECRET: usize = 48;
pub(super) const RANDOM: usize = 32;

/// Cipher and hash function of a cipher suite of version 1.2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suite {
    cipher: Cipher,
    prf: &'static Algorithm,
}

impl Suite {
    /// Parses the IANA name of a suite. Returns `None` if the cipher is not supported.
    pub(super) fn of(name: &str) -> Option<Self> {
        [
            ("_WITH_AES_128_GCM_SHA256", Cipher::Aes128Gcm, &P_SHA256),
            ("_WITH_AES_256_GCM_SHA384", Cipher::Aes256Gcm, &P_SHA384),
            ("_WITH_CHACHA20_POLY1305_SHA256", Cipher::ChaCha20Poly1305, &P_SHA256),
        ]
        .into_iter()
        .find_map(|(end, cipher, prf)| name.ends_with(end).then_some(Self { cipher, prf }))
    }
}

/// Keys of one direction.
#[derive(Clone)]
pub(super) struct DirectionKeys {
    pub(super) cipher: Cipher,
    pub(super) key: KeyBytes,
    pub(super) fixed: FixedPart,
}

fields!(DirectionKeys { 1 => cipher, 2 => key, 3 => fixed });

/// Derives the keys of the client's direction and of the server's.
pub(super) fn derive(
    suite: Suite,
    master_secret: &[u8; MASTER_SECRET],
    client_random: &[u8; RANDOM],
    server_random: &[u8; RANDOM],
) -> Option<[DirectionKeys; 2]> {
    let Suite { cipher, prf } = suite;
    let (key, fixed) = (cipher.key_len(), cipher.fixed_in_12());
    let secret = Secret::new(prf, master_secret).ok()?;
    let block = secret.derive_with_seed_concatination(
        b"key expansion",
        server_random,
        client_random,
        2 * (key + fixed),
    );
    let block = block.ok()?;
    // AEAD suites have no MAC keys: the block contains both keys, then both fixed parts.
    let (keys, rest) = block.as_ref().split_at_checked(2 * key)?;
    let of = |number: usize| {
        Some(DirectionKeys {
            cipher,
            key: KeyBytes::new(keys.get(number * key..)?.get(..key)?),
            fixed: FixedPart::new(rest.get(number * fixed..)?.get(..fixed)?)?,
        })
    };
    Some([of(0)?, of(1)?])
}
