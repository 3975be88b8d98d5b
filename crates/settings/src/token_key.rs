//! Keys of access tokens from their base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use turn_proto::TokenAlgorithm;
use turn_types::Secret;

use crate::file::TokenCipher;

/// A key of coturn's table, which may be longer than its algorithm needs; without an algorithm that
/// is A256GCM.
pub(crate) fn of_database(text: &str, algorithm: &str) -> Result<TokenAlgorithm, String> {
    let (cipher, needed) = match algorithm {
        "" | "A256GCM" => (TokenCipher::A256Gcm, 32),
        "A128GCM" => (TokenCipher::A128Gcm, 16),
        other => return Err(format!("the algorithm {other} is not one of A256GCM and A128GCM")),
    };
    let mut key = decoded(text.as_bytes())?;
    key.truncate(needed);
    sized(cipher, &key)
}

/// A key from its base64, of either alphabet and with or without padding, as JSON Web Keys have it.
pub(crate) fn algorithm(cipher: TokenCipher, text: &[u8]) -> Result<TokenAlgorithm, String> {
    sized(cipher, &decoded(text)?)
}

fn decoded(text: &[u8]) -> Result<Vec<u8>, String> {
    let plain: Vec<u8> = text
        .iter()
        .filter(|byte| **byte != b'=')
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let key = BASE64_STANDARD_NO_PAD.decode(plain);
    key.map_err(|_| "the key is not in base64".to_owned())
}

fn sized(cipher: TokenCipher, key: &[u8]) -> Result<TokenAlgorithm, String> {
    let wrong =
        |name, needed: usize| format!("the key has {} bytes, and {name} needs {needed}", key.len());
    match cipher {
        TokenCipher::A256Gcm => <[u8; 32]>::try_from(key)
            .map(|key| TokenAlgorithm::Aes256Gcm(Secret::new(key)))
            .map_err(|_| wrong("A256GCM", 32)),
        TokenCipher::A128Gcm => <[u8; 16]>::try_from(key)
            .map(|key| TokenAlgorithm::Aes128Gcm(Secret::new(key)))
            .map_err(|_| wrong("A128GCM", 16)),
    }
}
