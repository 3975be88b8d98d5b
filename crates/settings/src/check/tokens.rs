//! Keys of access tokens: the right size, and each with a name of its own.

use std::sync::Arc;

use turn_proto::TokenKey;
use turn_proto::limits::TOKEN_KEYS_MAX;

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, TokenCipher};
use crate::token_key::algorithm;

const KEY: &str = "auth.token_keys";

/// The valid keys.
pub(super) fn check(auth: &file::Auth, document: &Document, errors: &mut Errors) -> Vec<TokenKey> {
    let mut keys: Vec<TokenKey> = Vec::new();
    for (index, entry) in auth.token_keys.iter().enumerate() {
        let source = Source {
            key: KEY,
            which: format!("entry {}: ", index + 1),
            place: document.entry_place(KEY, index),
            words: ["key", "key_file"],
        };
        let Some(kid) = entry.kid.as_deref() else {
            let help = "add kid = \"...\", the name that the authorization server calls the key by";
            source.refuse("there is no kid", help, errors);
            continue;
        };
        if keys.iter().any(|other| *other.kid == *kid) {
            let what = format!("another key is called \"{kid}\" too");
            source.refuse(&what, "remove one of them", errors);
        }
        let text = source.secret(entry.key.as_ref(), entry.key_file.as_deref(), document, errors);
        let Some(text) = text else { continue };
        match algorithm(entry.algorithm, text.expose()) {
            Ok(algorithm) => keys.push(TokenKey { kid: Arc::from(kid), algorithm }),
            Err(what) => source.refuse(&what, advice(entry.algorithm), errors),
        }
    }
    if keys.len() > TOKEN_KEYS_MAX {
        let what = format!("there are {} keys", keys.len());
        errors.add(document.place(KEY), KEY, what, format!("keep at most {TOKEN_KEYS_MAX}"));
    }
    keys
}

const fn advice(cipher: TokenCipher) -> &'static str {
    match cipher {
        TokenCipher::A256Gcm => "make one with `openssl rand -base64 32`",
        TokenCipher::A128Gcm => "make one with `openssl rand -base64 16`",
    }
}
