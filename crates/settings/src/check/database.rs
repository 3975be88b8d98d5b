//! Databases whose URL is in a file.

use std::path::Path;

use super::secret;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{Accounting, Users};
use crate::value::{Database, Written as _};

const KEY: &str = "users.database_file";

/// The database of `users.database_file`, if it is set.
pub(super) fn check(users: &Users, document: &Document, errors: &mut Errors) -> Option<Database> {
    let file = users.database_file.as_ref()?;
    of_file((KEY, file), ("users.database", users.database.is_some()), document, errors)
}

/// The Redis server of `accounting.redis_file`, if it is set.
pub(super) fn statistics(
    accounting: &Accounting,
    document: &Document,
    errors: &mut Errors,
) -> Option<Database> {
    const REDIS: &str = "accounting.redis";
    const REDIS_FILE: &str = "accounting.redis_file";
    let of_file = accounting.redis_file.as_ref().and_then(|file| {
        of_file((REDIS_FILE, file), (REDIS, accounting.redis.is_some()), document, errors)
    });
    for (key, server) in [(REDIS, &accounting.redis), (REDIS_FILE, &of_file)] {
        if server.as_ref().is_some_and(|server| !server.is_redis()) {
            let what = "it is no URL of Redis";
            errors.add(document.place(key), key, what, "write it as \"redis://127.0.0.1/0\"");
        }
    }
    of_file
}

fn of_file(
    (key, file): (&'static str, &Path),
    (other, has_other): (&str, bool),
    document: &Document,
    errors: &mut Errors,
) -> Option<Database> {
    let file = document.directory().join(file);
    let mut refuse = |what: String, help: &str| errors.add(document.place(key), key, what, help);
    if has_other {
        refuse(format!("there is {other}, too"), "keep one of them");
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
