//! Addition and change of users. Each command changes only its subject.

use anyhow::anyhow;
use serde::Serialize;
use user_db::{NewUser, StoreError, UserEditor};

use crate::cli;
use crate::commands::user::password::Password;
use crate::commands::user::{Database, bulk, revoke, unknown};
use crate::failure::{Failure, Result};
use crate::{first_start, output};

#[derive(Debug, Serialize)]
struct Added {
    realm: String,
    username: String,
    /// Password, if generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    /// True if an existing user has new keys now.
    replaced: bool,
}

#[derive(Debug, Serialize)]
struct Limited {
    realm: String,
    username: String,
    allocations_max: Option<u32>,
}

pub(super) fn add(database: &mut Database<'_>, args: cli::UserAdd) -> Result<()> {
    let Some(name) = args.name else {
        return bulk::add(database, args.allocations_max, args.replace, args.output);
    };
    let password = Password::of(args.password)?;
    let user = NewUser::new(&database.realm, &name, &password.secret, args.allocations_max)
        .map_err(Failure::usage)?;
    let replaced = if args.replace {
        first_start::forget(&database.directory, user.realm(), user.name())?;
        database.change(&[user.name()], |store| store.replace(&user))?
    } else {
        database.change(&[user.name()], |store| store.add(&user)).map_err(refused)?;
        false
    };
    revoke::warn_of_revoked(database.paths, &database.realm, user.name());
    let verb = if replaced { "was replaced" } else { "was added" };
    tell(&user, password.generated, (verb, replaced), args.output)
}

pub(super) fn password(database: &mut Database<'_>, args: cli::UserPassword) -> Result<()> {
    let password = Password::of(args.password)?;
    let user = NewUser::new(&database.realm, &args.name, &password.secret, None)
        .map_err(Failure::usage)?;
    if !database.change(&[user.name()], |store| store.set_keys(&user))? {
        return Err(unknown(user.name(), &database.realm));
    }
    first_start::forget(&database.directory, user.realm(), user.name())?;
    tell(&user, password.generated, ("has a new password", true), args.output)
}

pub(super) fn set(database: &mut Database<'_>, args: &cli::UserSet) -> Result<()> {
    // The command line has both values, or neither and lines on standard input.
    let (Some(name), Some(cli::AllocationsMax(allocations_max))) =
        (&args.name, args.allocations_max)
    else {
        return bulk::set(database, args.output);
    };
    let name = user_db::prepared_name(name).map_err(Failure::usage)?;
    let realm = database.realm.clone();
    let change =
        |store: &mut dyn UserEditor| store.set_allocations_max(&realm, &name, allocations_max);
    if !database.change(&[&name], change)? {
        return Err(unknown(&name, &realm));
    }
    if args.output.json {
        return output::print_json(&Limited { realm, username: name, allocations_max });
    }
    let most = super::most(allocations_max);
    output::print(&format!("user {name} in realm {realm}: allocations {most}"))
}

/// Converts an error of the store to a failure that names the commands for the likely intention.
fn refused(error: StoreError) -> Failure {
    let StoreError::Exists { name, realm } = error else { return Failure::failed(error) };
    Failure::failed(anyhow!("there is a user \"{name}\" in realm {realm} already")).hint(
        "nothing was changed; `turnpike user password NAME` gives a new password, `turnpike user set \
         NAME` changes the limit, and `user add --replace` does both",
    )
}

fn tell(
    user: &NewUser,
    password: Option<String>,
    (verb, replaced): (&str, bool),
    output: cli::Output,
) -> Result<()> {
    let (realm, username) = (user.realm().to_owned(), user.name().to_owned());
    if output.json {
        return output::print_json(&Added { realm, username, password, replaced });
    }
    let mut text = format!("user {username} {verb} in realm {realm}");
    if let Some(password) = password {
        text.push_str(&format!("\npassword  {password}\n(it is not kept: note it down now)"));
    }
    output::print(&text)
}
