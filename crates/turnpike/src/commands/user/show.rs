//! User in detail, and export of all users as lines for `--stdin`.

use std::fs;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use atomic_file::{Access, NewFile};
use serde::Serialize;
use user_db::{Page, Position, UserKeys, UserQuery, UserSummary};

use super::{Database, PAGE, all, most, unknown};
use crate::cli;
use crate::failure::{Failure, Result};
use crate::{escape, output};

#[derive(Debug, Serialize)]
struct Shown {
    realm: String,
    username: String,
    allocations_max: Option<u32>,
    created_unix: Option<u64>,
    /// Kinds of the user's keys: `md5`, `sha256`.
    keys: Vec<&'static str>,
}

/// Line of the export. The module `lines` reads these fields.
#[derive(Debug, Serialize)]
struct Exported {
    realm: String,
    username: String,
    allocations_max: Option<u32>,
    created_unix: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

pub(super) fn show(database: &mut Database<'_>, name: &str, output: cli::Output) -> Result<()> {
    let name = user_db::prepared_name(name).map_err(Failure::usage)?;
    let realm = database.realm.clone();
    let user = database.store.user(&realm, &UserQuery::Name(name.as_str().into()))?;
    let user = user.ok_or_else(|| unknown(&name, &realm))?;
    let created = summary(database, &name)?.and_then(|summary| summary.created);
    let mut keys = vec!["md5"];
    keys.extend(user.keys.sha256.map(|_| "sha256"));
    let allocations_max = user.allocations_max;
    let shown = Shown { realm, username: name, allocations_max, created_unix: created, keys };
    if output.json {
        return output::print_json(&shown);
    }
    output::print(&describe(&shown))
}

/// Finds a user in the list of users, which contains the time of creation.
fn summary(database: &mut Database<'_>, name: &str) -> Result<Option<UserSummary>> {
    let is_it = |user: &UserSummary| user.name == name;
    // Usually the user is on the page after the name without the last character.
    let mut before = name.to_owned();
    before.pop();
    let realm = database.realm.clone();
    let after = Some(Position { realm: realm.clone(), name: before });
    let page = database.store.list(&Page { realm: Some(realm), after, limit: PAGE })?;
    if let Some(user) = page.into_iter().find(is_it) {
        return Ok(Some(user));
    }
    Ok(all(database)?.into_iter().find(is_it))
}

fn describe(shown: &Shown) -> String {
    let keys = match shown.keys.len() {
        1 => "MD5 only, from another server; a new password makes SHA-256, too",
        _ => "MD5 and SHA-256",
    };
    let added = shown.created_unix.map_or_else(
        || "unknown".to_owned(),
        |created| {
            let then = UNIX_EPOCH + Duration::from_secs(created);
            let age = SystemTime::now().duration_since(then).unwrap_or_default();
            format!("{} ago", output::duration(age))
        },
    );
    format!(
        "user {} in realm {}\n  allocations  {}\n  added        {added}\n  keys         {keys}",
        shown.username,
        shown.realm,
        most(shown.allocations_max),
    )
}

pub(super) fn export(database: &mut Database<'_>, args: &cli::UserExport) -> Result<()> {
    let users = all(database)?;
    if let Some(file) = &args.keys {
        return export_keys(database, users, file);
    }
    if users.is_empty() {
        eprintln!("note: realm {} has no users", escape::line(&database.realm));
    }
    for user in users {
        output::print(&line(user, None)?)?;
    }
    Ok(())
}

/// Writes the users with their keys to a new file that only its owner can read.
fn export_keys(database: &mut Database<'_>, users: Vec<UserSummary>, path: &Path) -> Result<()> {
    let refused = |error: std::io::Error| {
        let failure = Failure::failed(anyhow!("cannot write {}: {error}", path.display()));
        if error.kind() == ErrorKind::AlreadyExists {
            return failure.hint("name a new file: no file is replaced");
        }
        failure
    };
    // Checked before the keys are read. The file appears only after it is complete.
    if fs::symlink_metadata(path).is_ok() {
        return Err(refused(ErrorKind::AlreadyExists.into()));
    }
    let file = NewFile::open(path, Access::PRIVATE).map_err(refused)?;
    let number = users.len();
    write_keys(database, users, file)?.create().map_err(refused)?;
    let s = if number == 1 { "" } else { "s" };
    output::print(&format!(
        "{} user{s} of realm {} in {}, with keys that are as good as passwords; on the other server: \
         turnpike user add --stdin --realm {} < {}",
        output::grouped(number as u64),
        database.realm,
        path.display(),
        database.realm,
        path.display(),
    ))
}

fn write_keys(
    database: &mut Database<'_>,
    users: Vec<UserSummary>,
    file: NewFile,
) -> Result<NewFile> {
    let mut out = BufWriter::new(file);
    for user in users {
        let query = UserQuery::Name(user.name.as_str().into());
        // A user that was deleted since the listing is skipped.
        if let Some(found) = database.store.user(&user.realm, &query)? {
            writeln!(out, "{}", line(user, Some(&found.keys))?)?;
        }
    }
    Ok(out.into_inner().map_err(|error| error.into_error())?)
}

fn line(user: UserSummary, keys: Option<&UserKeys>) -> Result<String> {
    let UserSummary { realm, name: username, allocations_max, created: created_unix } = user;
    let md5 = keys.map(|keys| hexadecimal(keys.md5.expose()));
    let sha256 = keys.and_then(|keys| keys.sha256).map(|key| hexadecimal(key.expose()));
    let line = Exported { realm, username, allocations_max, created_unix, md5, sha256 };
    Ok(escape::json(&serde_json::to_string(&line)?).into_owned())
}

fn hexadecimal(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
