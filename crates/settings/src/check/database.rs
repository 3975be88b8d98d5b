//! The user database, where its URL is in a file.

use super::secret;
use crate::document::Document;
use crate::error::Errors;
use crate::file::Users;
use crate::value::{Database, Written as _};

const KEY: &str = "users.database_file";

/// The database of `users.database_file`, if it is set.
pub(super) fn check(users: &Users, document: &Document, errors: &mut Errors) -> Option<Database> {
    let file = document.directory().join(users.database_file.as_ref()?);
    let mut refuse = |what: String, help: &str| errors.add(document.place(KEY), KEY, what, help);
    if users.database.is_some() {
        refuse("there is a users.database, too".to_owned(), "keep one of them");
        return None;
    }
    let bytes = match secret::read(&file) {
        Ok(bytes) => bytes,
        Err(what) => {
            refuse(what, "the file needs to be readable by the user that the server runs as");
            return None;
        }
    };
    let parsed = std::str::from_utf8(&bytes).map_err(|_| "it is not text".to_owned());
    match parsed.and_then(Database::parse) {
        Ok(database) => Some(database),
        Err(what) => {
            refuse(format!("{}: {what}", file.display()), &Database::forms());
            None
        }
    }
}
