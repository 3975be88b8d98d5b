//! Signed tokens: the issuer with its keys, and the secret.

use std::sync::Arc;

use turn_types::Secret;

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::File;

const ISSUER: &str = "signed_tokens.issuer";
const FILE: &str = "signed_tokens.secret_file";

/// The valid secret, if there is a file of it.
pub(super) fn check(
    file: &File,
    document: &Document,
    errors: &mut Errors,
) -> Option<Secret<Arc<[u8]>>> {
    let tokens = &file.signed_tokens;
    if tokens.issuer.is_some() {
        let keys =
            [tokens.keys_file.is_some(), tokens.keys_url.is_some(), tokens.secret_file.is_some()];
        let complain = |what: &str, help: &str, errors: &mut Errors| {
            errors.add(document.place(ISSUER), ISSUER, what.to_owned(), help);
        };
        if tokens.audience.is_none() && !document.is_refused("signed_tokens.audience") {
            let help = "set signed_tokens.audience to the name of this service at the issuer";
            complain("tokens for other services of the issuer would be accepted", help, errors);
        }
        if !keys.contains(&true) {
            let help = "set signed_tokens.keys_file, keys_url or secret_file";
            complain("there is no key to verify its tokens with", help, errors);
        }
    }
    let secret = tokens.secret_file.as_deref()?;
    let source = Source::of_key(FILE, ["secret", "secret_file"], document);
    source.secret(None, Some(secret), document, errors)
}
