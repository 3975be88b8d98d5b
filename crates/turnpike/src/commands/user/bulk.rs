//! Changes of many users from standard input. Either all or none are applied.
//!
//! All errors of the input are found before the first change. If the database fails later, previous
//! changes are undone. If the process is killed, they remain.

use std::io;

use anyhow::anyhow;
use serde::Serialize;
use user_db::{NewUser, StoreError, UserEditor, UserKeys, UserQuery, UserRecord};

use super::lines::{self, Line, Wrong};
use crate::cli;
use crate::commands::user::Database;
use crate::failure::{Failure, OrFail as _, Result};
use crate::{first_start, output};

/// Maximum number of invalid lines that are shown. Further lines are only counted.
const SHOWN: usize = 20;

#[derive(Debug, Default, Serialize)]
struct Done {
    realm: String,
    /// Number of users that did not exist before.
    added: u64,
    /// Number of users with other keys or another limit.
    changed: u64,
}

/// Change of one user.
struct Change {
    number: usize,
    name: String,
    /// Previous state of the user.
    before: Option<UserRecord>,
    kind: Kind,
}

enum Kind {
    Add(NewUser),
    Replace(NewUser),
    Set { keys: Option<NewUser>, allocations_max: Option<Option<u32>> },
}

/// Adds the users on standard input. With `replace`, also changes existing users. `allocations_max`
/// is the limit for lines without a limit.
pub(super) fn add(
    database: &mut Database<'_>,
    allocations_max: Option<u32>,
    replace: bool,
    output: cli::Output,
) -> Result<()> {
    let plan = |line: &Line, before: Option<&UserRecord>, realm: &str| {
        let keys = line.keys.ok_or("has neither a password nor keys")?;
        let user = new_user(realm, line, keys, line.allocations_max.unwrap_or(allocations_max))?;
        match before {
            None => Ok(Kind::Add(user)),
            Some(_) if replace => Ok(Kind::Replace(user)),
            Some(_) => Err(format!("{} exists already; --replace changes it", line.name)),
        }
    };
    apply(database, plan, output)
}

/// Changes keys and limits of the users on standard input.
pub(super) fn set(database: &mut Database<'_>, output: cli::Output) -> Result<()> {
    let plan = |line: &Line, before: Option<&UserRecord>, realm: &str| {
        if before.is_none() {
            return Err(format!("there is no user {}", line.name));
        }
        if line.keys.is_none() && line.allocations_max.is_none() {
            return Err("has no password, no keys and no allocations_max".to_owned());
        }
        let keys = line.keys.map(|keys| new_user(realm, line, keys, None)).transpose()?;
        Ok(Kind::Set { keys, allocations_max: line.allocations_max })
    };
    apply(database, plan, output)
}

fn new_user(
    realm: &str,
    line: &Line,
    keys: UserKeys,
    allocations_max: Option<u32>,
) -> Result<NewUser, String> {
    NewUser::with_keys(realm, &line.name, keys, allocations_max).map_err(|error| error.to_string())
}

fn apply(
    database: &mut Database<'_>,
    plan: impl Fn(&Line, Option<&UserRecord>, &str) -> Result<Kind, String>,
    output: cli::Output,
) -> Result<()> {
    let realm = database.realm.clone();
    let (lines, mut wrong) =
        lines::read(io::stdin().lock(), &realm).or_fail("cannot read standard input")?;
    let mut changes = Vec::with_capacity(lines.len());
    for line in lines {
        let before = database.store.user(&realm, &UserQuery::Name(line.name.as_str().into()))?;
        match plan(&line, before.as_ref(), &realm) {
            Ok(kind) => changes.push(Change { number: line.number, name: line.name, before, kind }),
            Err(error) => wrong.push(Wrong { number: line.number, error }),
        }
    }
    if !wrong.is_empty() {
        return Err(refused(wrong, &realm));
    }
    let mut done = Done { realm, ..Done::default() };
    let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
    database.change(&names, |store| write(store, &done.realm, &changes))?;
    for Change { name, before, kind, .. } in &changes {
        match before {
            None => done.added += 1,
            Some(_) => done.changed += 1,
        }
        if matches!(kind, Kind::Replace(_) | Kind::Set { keys: Some(_), .. }) {
            first_start::forget(&database.directory, &done.realm, name)?;
        }
    }
    if output.json {
        return output::print_json(&done);
    }
    output::print(&describe(&done))
}

fn describe(Done { realm, added, changed }: &Done) -> String {
    let users = |n: u64| {
        let s = if n == 1 { " was" } else { "s were" };
        format!("{} user{s}", output::grouped(n))
    };
    match (added, changed) {
        (0, 0) => format!("no user on standard input; nothing was changed in realm {realm}"),
        (added, 0) => format!("{} added in realm {realm}", users(*added)),
        (0, changed) => format!("{} changed in realm {realm}", users(*changed)),
        (added, changed) => {
            format!("{} added and {changed} changed in realm {realm}", users(*added))
        }
    }
}

fn refused(mut wrong: Vec<Wrong>, realm: &str) -> Failure {
    wrong.sort_by_key(|one| one.number);
    let all = wrong.len();
    let mut text = format!("nothing was changed in realm {realm}");
    for Wrong { number, error } in wrong.iter().take(SHOWN) {
        text.push_str(&format!("\n  line {number}: {error}"));
    }
    if all > SHOWN {
        text.push_str(&format!("\n  and {} lines more", output::grouped((all - SHOWN) as u64)));
    }
    Failure::usage(anyhow!("{text}"))
}

/// Applies all changes. After a failure, undoes the previous changes.
fn write(store: &mut dyn UserEditor, realm: &str, changes: &[Change]) -> Result<()> {
    for (index, change) in changes.iter().enumerate() {
        let Err(error) = write_one(store, realm, change) else { continue };
        // A failed addition is not undone, because another command may have added the user. Other
        // failed changes may be partially done.
        let done = index + usize::from(!matches!(change.kind, Kind::Add(_)));
        let undone = changes[..done].iter().rev();
        let kept: Vec<&str> = undone
            .filter(|change| undo(store, realm, change).is_err())
            .map(|change| &*change.name)
            .collect();
        let error = format!("line {}: {error}", change.number);
        return Err(match &kept[..] {
            [] => Failure::failed(anyhow!("{error}; nothing was changed in realm {realm}")),
            [last, ..] => Failure::failed(anyhow!(
                "{error}; {} of the changes before could not be undone, the last of them of {last}",
                kept.len(),
            ))
            .hint("`turnpike user show NAME` shows a user; `turnpike user add --stdin --replace` repeats all lines"),
        });
    }
    Ok(())
}

fn write_one(store: &mut dyn UserEditor, realm: &str, change: &Change) -> Result<(), StoreError> {
    let is_there = match &change.kind {
        Kind::Add(user) => return store.add(user),
        Kind::Replace(user) => return store.replace(user).map(drop),
        Kind::Set { keys, allocations_max } => {
            let limited = allocations_max
                .map(|limit| store.set_allocations_max(realm, &change.name, limit))
                .transpose()?;
            let keyed = keys.as_ref().map(|user| store.set_keys(user)).transpose()?;
            limited.unwrap_or(true) && keyed.unwrap_or(true)
        }
    };
    if is_there {
        return Ok(());
    }
    Err(StoreError::Name { what: format!("{} was deleted meanwhile", change.name) })
}

/// Restores the previous state of a user.
fn undo(store: &mut dyn UserEditor, realm: &str, change: &Change) -> Result<(), StoreError> {
    let Change { name, before, .. } = change;
    match before {
        None => store.delete(realm, name).map(drop),
        // These operations do not add a user that was deleted since.
        Some(UserRecord { keys, allocations_max, .. }) => {
            store.set_keys(&NewUser::with_keys(realm, name, *keys, *allocations_max)?)?;
            store.set_allocations_max(realm, name, *allocations_max).map(drop)
        }
    }
}
