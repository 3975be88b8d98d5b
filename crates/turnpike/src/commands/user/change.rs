//! Adding users and changing them. Each command changes only its subject.

use std::io::Read as _;

use anyhow::anyhow;
use serde::Serialize;
use turn_types::Secret;
use user_db::{Credentials, NewUser, StoreError};

use crate::cli;
use crate::commands::user::{Database, unknown};
use crate::failure::{Failure, OrFail as _, Result};
use crate::{first_start, output};

/// Bytes read as a password: one and a line end more than it may have, so that too much is seen and
/// no more is read.
const PASSWORD_READ_MAX: u64 = user_db::PASSWORD_BYTES_MAX as u64 + 3;

/// Characters of a password: clients send a hash of it, which anyone on the way can try passwords against.
const PASSWORD_CHARS_MIN: usize = 8;

#[derive(Debug, Serialize)]
struct Added {
    realm: String,
    username: String,
    /// Only when it was generated.
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

/// A password, and the same once more when it was generated and is to be shown.
struct Password {
    secret: Secret<String>,
    generated: Option<String>,
}

impl Password {
    fn of(options: cli::Password) -> Result<Self> {
        if let Some(password) = options.password {
            return Self::chosen(password);
        }
        if options.password_stdin {
            return Self::chosen(read_password()?);
        }
        let made = Credentials::generate()
            .map_err(|error| Failure::failed(anyhow!("no random numbers: {error}")))?;
        let generated = Some(made.password.expose().clone());
        Ok(Self { secret: made.password, generated })
    }
}

impl Password {
    /// A password that an operator has chosen; an empty one is refused with the name.
    fn chosen(password: String) -> Result<Self> {
        let chars = password.chars().count();
        if (1..PASSWORD_CHARS_MIN).contains(&chars) {
            let s = if chars == 1 { "" } else { "s" };
            return Err(Failure::usage(anyhow!(
                "the password has {chars} character{s}, and needs {PASSWORD_CHARS_MIN} or more"
            ))
            .hint(
                "leave it out, and one is made; whoever sees a client's packets can try short ones",
            ));
        }
        Ok(Self { secret: Secret::new(password), generated: None })
    }
}

pub(super) fn add(database: &mut Database, args: cli::UserAdd) -> Result<()> {
    let password = Password::of(args.password)?;
    let user = NewUser::new(&database.realm, &args.name, &password.secret, args.allocations_max)
        .map_err(Failure::usage)?;
    let replaced = if args.replace {
        first_start::forget(&database.directory, user.realm(), user.name())?;
        database.store.replace(&user)?
    } else {
        database.store.add(&user).map_err(refused)?;
        false
    };
    let verb = if replaced { "was replaced" } else { "was added" };
    tell(&user, password.generated, (verb, replaced), args.output)
}

pub(super) fn password(database: &mut Database, args: cli::UserPassword) -> Result<()> {
    let password = Password::of(args.password)?;
    let user = NewUser::new(&database.realm, &args.name, &password.secret, None)
        .map_err(Failure::usage)?;
    if !database.store.set_keys(&user)? {
        return Err(unknown(user.name(), &database.realm));
    }
    first_start::forget(&database.directory, user.realm(), user.name())?;
    tell(&user, password.generated, ("has a new password", true), args.output)
}

pub(super) fn set(database: &mut Database, args: &cli::UserSet) -> Result<()> {
    let name = user_db::prepared_name(&args.name).map_err(Failure::usage)?;
    let realm = database.realm.clone();
    let cli::AllocationsMax(allocations_max) = args.allocations_max;
    if !database.store.set_allocations_max(&realm, &name, allocations_max)? {
        return Err(unknown(&name, &realm));
    }
    if args.output.json {
        return output::print_json(&Limited { realm, username: name, allocations_max });
    }
    let most = super::most(allocations_max);
    output::print(&format!("user {name} in realm {realm}: allocations {most}"))
}

/// An error of the store, with the commands for the likely intention.
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

fn read_password() -> Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .take(PASSWORD_READ_MAX)
        .read_to_string(&mut text)
        .or_fail("cannot read the password from standard input")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
