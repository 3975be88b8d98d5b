//! Keys of access tokens, as they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{SecretText, Text};

/// An entry of `auth.token_keys`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenKeyEntry {
    /// Its name (`kid`), which clients send as their user name.
    pub kid: Option<Text<1, 255>>,
    /// The key in base64: 32 bytes for `A256GCM`, 16 for `A128GCM`.
    pub key: Option<SecretText>,
    /// The file that the key is in, in base64 as well, instead of `key`.
    pub key_file: Option<String>,
    /// How tokens are sealed: `A256GCM` (AES-256-GCM) unless it says `A128GCM`.
    pub algorithm: TokenCipher,
}

/// How tokens are sealed (RFC 7635 §4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TokenCipher {
    /// AES-256-GCM.
    #[default]
    #[serde(rename = "A256GCM")]
    A256Gcm,
    /// AES-128-GCM.
    #[serde(rename = "A128GCM")]
    A128Gcm,
}

impl TokenCipher {
    /// The word in the file.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::A256Gcm => "A256GCM",
            Self::A128Gcm => "A128GCM",
        }
    }
}
