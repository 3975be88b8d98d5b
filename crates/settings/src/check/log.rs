//! The log: the key of pseudonyms.

use std::sync::Arc;

use turn_types::Secret;

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{Log, LogAddresses};

const KEY: &str = "log.address_key_file";

/// The valid key of pseudonyms, if there is a file of it.
pub(super) fn check(
    log: &Log,
    document: &Document,
    errors: &mut Errors,
) -> Option<Secret<Arc<[u8]>>> {
    let file = log.address_key_file.as_deref()?;
    let source = Source::of_key(KEY, ["key", "address_key_file"], document);
    if log.addresses != LogAddresses::Pseudonym && !document.is_refused("log.addresses") {
        let help = "set log.addresses = \"pseudonym\", or remove the key";
        source.refuse("there are no pseudonyms to make with it", help, errors);
    }
    source.secret(None, Some(file), document, errors)
}
