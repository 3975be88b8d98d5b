//! Keys that verify signed tokens (RFC 7517). Each key has one algorithm, and a token is only tried
//! with keys of the token's algorithm. A public key is therefore never used as a secret.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde::Deserialize;

/// Maximum number of keys in a set. A token without a `kid` is tried with each key.
const KEYS_MAX: usize = 16;

/// JSON Web Key Set whose keys are parsed separately.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// Keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Key>);

/// Key with its algorithm.
pub(super) struct Key {
    kid: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

impl Keys {
    pub(super) const fn new(keys: Vec<Key>) -> Self {
        Self(keys)
    }

    /// Reads a JSON Web Key Set. Keys of unsupported kinds, keys with another purpose or algorithm,
    /// and unreadable keys are ignored (RFC 7517 §5). A set without entries withdraws all keys.
    ///
    /// # Errors
    /// The text is not a key set, or has entries but no usable key.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let set: KeySet = serde_json::from_slice(text)
            .map_err(|error| format!("this is no JSON Web Key Set: {error}"))?;
        if set.keys.is_empty() {
            tracing::warn!("the key set is empty: every signed token is refused");
            return Ok(Self(Vec::new()));
        }
        let readable = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let mut keys: Vec<Key> = readable.filter_map(|key| Key::of(&key)).collect();
        if keys.len() > KEYS_MAX {
            tracing::warn!(
                "the key set has {} keys for signatures, and the first {KEYS_MAX} of them count",
                keys.len()
            );
            keys.truncate(KEYS_MAX);
        }
        if keys.is_empty() {
            return Err("the set has no key for EdDSA, ES256 or RS256".to_owned());
        }
        Ok(Self(keys))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys that may have signed a token with this header.
    pub(super) fn of<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a Key> {
        let named = |key: &Key| match (&header.kid, &key.kid) {
            (Some(wanted), Some(kid)) => wanted == kid,
            (None, _) | (_, None) => true,
        };
        self.0.iter().filter(move |key| key.algorithm == header.alg && named(key))
    }
}

impl Key {
    /// Creates a key for HS256 from a secret.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        Self { kid: None, algorithm: Algorithm::HS256, decoding: DecodingKey::from_secret(secret) }
    }

    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let verifies = |of: &Vec<_>| of.contains(&KeyOperations::Verify);
        if common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature)
            || !common.key_operations.as_ref().is_none_or(verifies)
        {
            return None;
        }
        let of = &jwk.algorithm;
        let algorithm = if matches!(of, AlgorithmParameters::RSA(_)) {
            Algorithm::RS256
        } else if matches!(of, AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256)
        {
            Algorithm::ES256
        } else if matches!(of, AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519)
        {
            Algorithm::EdDSA
        } else {
            return None;
        };
        if common.key_algorithm.is_some_and(|named| named.to_string() != format!("{algorithm:?}")) {
            return None;
        }
        let decoding = DecodingKey::from_jwk(jwk).ok()?;
        Some(Self { kid: jwk.common.key_id.clone(), algorithm, decoding })
    }

    /// Returns true if the header of a token names exactly this key.
    pub(super) fn is_named_by(&self, header: &Header) -> bool {
        self.kid.is_some() && self.kid == header.kid
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kid, self.algorithm)
    }
}
