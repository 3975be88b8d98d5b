//! Keys of access tokens: the right size, and each with a name of its own.

use std::sync::Arc;

use turn_proto::limits::TOKEN_KEYS_MAX;
use turn_proto::{TokenKey, UserName};

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, TokenCipher, TokenKeyEntry};
use crate::limits::SECRET_BYTES_MIN;
use crate::token_key::algorithm;

const KEY: &str = "auth.token_keys";

/// Names of the text and of the file of a key.
pub(super) const WORDS: [&str; 2] = ["key", "key_file"];

/// The valid keys of `auth.token_keys`.
pub(super) fn check(auth: &file::Auth, document: &Document, errors: &mut Errors) -> Vec<TokenKey> {
    let source = |index| Source {
        key: KEY,
        which: format!("entry {}: ", index + 1),
        place: document.entry_place(KEY, index),
        words: WORDS,
        least: SECRET_BYTES_MIN,
    };
    entries(&auth.token_keys, source, document, errors)
}

/// The valid keys of a list.
pub(super) fn entries(
    list: &[TokenKeyEntry],
    source: impl Fn(usize) -> Source,
    document: &Document,
    errors: &mut Errors,
) -> Vec<TokenKey> {
    let mut keys: Vec<TokenKey> = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let source = source(index);
        let Some(kid) = entry.kid.as_deref() else {
            let help = "add kid = \"...\", the name that the authorization server calls the key by";
            source.refuse("there is no kid", help, errors);
            continue;
        };
        // Clients send it as their name.
        let kid = match UserName::new(kid) {
            Ok(kid) => kid.into_string(),
            Err(error) => {
                source.refuse(&format!("the kid {error}"), "call the key by another name", errors);
                continue;
            }
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
        source(TOKEN_KEYS_MAX).refuse(&what, &format!("keep at most {TOKEN_KEYS_MAX}"), errors);
    }
    keys
}

const fn advice(cipher: TokenCipher) -> &'static str {
    match cipher {
        TokenCipher::A256Gcm => "make one with `openssl rand -base64 32`",
        TokenCipher::A128Gcm => "make one with `openssl rand -base64 16`",
    }
}
