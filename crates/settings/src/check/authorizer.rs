//! The authorizer, and the separators of limits in names.

use std::sync::Arc;

use turn_types::Secret;

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::File;

const FILE: &str = "authorizer.authorization_file";

/// The valid header, if there is a file of it.
pub(super) fn check(
    file: &File,
    document: &Document,
    errors: &mut Errors,
) -> Option<Secret<Arc<[u8]>>> {
    const SEPARATOR: &str = "auth.separator";
    if file.auth.limits_in_names && file.auth.separator.contains(['?', '=', '&', ',', '/', '.']) {
        let what = format!("\"{}\" is part of the limits in names", &*file.auth.separator);
        let help = "write another one, or auth.limits_in_names = false";
        errors.add(document.place(SEPARATOR), SEPARATOR, what, help);
    }
    let header = file.authorizer.authorization_file.as_deref()?;
    let source = Source::of_key(FILE, ["header", "authorization_file"], document);
    source.secret(None, Some(header), document, errors)
}
