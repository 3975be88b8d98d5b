//! The key of nonces that several servers share.

use turn_proto::{NonceKey, shared_nonce_key};

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::Auth;

const KEY: &str = "auth.nonce_key_file";

/// The valid key, if there is a file of it.
pub(super) fn check(auth: &Auth, document: &Document, errors: &mut Errors) -> Option<NonceKey> {
    let file = auth.nonce_key_file.as_deref()?;
    let source = Source::of_key(KEY, ["key", "nonce_key_file"], document);
    let secret = source.secret(None, Some(file), document, errors)?;
    Some(shared_nonce_key(secret.expose()))
}
