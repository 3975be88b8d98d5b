//! The key of nonces that several servers share.

use turn_proto::{NonceKey, shared_nonce_key};

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::Auth;
use crate::limits::SECRET_BYTES_MIN;

const KEY: &str = "auth.nonce_key_file";

/// The valid key, if there is a file of it.
pub(super) fn check(auth: &Auth, document: &Document, errors: &mut Errors) -> Option<NonceKey> {
    let file = auth.nonce_key_file.as_deref()?;
    let words = ["key", "nonce_key_file"];
    let source = Source {
        key: KEY,
        which: String::new(),
        place: document.place(KEY),
        words,
        least: SECRET_BYTES_MIN,
    };
    let secret = source.secret(None, Some(file), document, errors)?;
    Some(shared_nonce_key(secret.expose()))
}
