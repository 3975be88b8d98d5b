//! `turnpike user`: who is in the database. A running server sees a change within a second.

use std::io::Read as _;

use anyhow::anyhow;
use serde::Serialize;
use settings::Settings;
use turn_types::Secret;
use user_db::{Credentials, NewUser, Page, SqliteStore, UserStore, UserSummary};

use crate::cli::{self, Place};
use crate::failure::{Failure, OrFail as _, Result};
use crate::output::{self, Align, Table};
use crate::{first_start, place};

/// Users read from the database at a time.
const PAGE: u32 = 1000;

/// Bytes read as a password: one and a line end more than it may have, so that too much is seen and
/// no more is read.
const PASSWORD_READ_MAX: u64 = user_db::PASSWORD_BYTES_MAX as u64 + 3;

#[derive(Debug, Serialize)]
struct Added {
    realm: String,
    username: String,
    /// Only when it was generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    /// Whether the user was there before and has new keys now.
    replaced: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    realm: String,
    username: String,
    allocations_max: Option<u32>,
    created_unix: u64,
}

#[derive(Debug, Serialize)]
struct Deleted {
    realm: String,
    username: String,
}

pub(crate) fn run(place: &Place, args: cli::User) -> Result<()> {
    let settings = place::load(place)?.settings;
    let adds = match &args {
        cli::User::Add(_) => true,
        cli::User::List { .. } | cli::User::Delete { .. } => false,
    };
    if !adds {
        has_database(&settings)?;
    }
    let mut store = SqliteStore::open(&settings.user_database()).map_err(|error| {
        Failure::failed(error).hint("name the server's data directory with --data or --config")
    })?;
    match args {
        cli::User::Add(args) => add(&settings, &mut store, args),
        cli::User::List { output } => list(&settings, &mut store, output),
        cli::User::Delete { name, output } => delete(&settings, &mut store, &name, output),
    }
}

/// Opening a database makes it when it is not there. Who lists or deletes users has named the wrong
/// directory then, and is better told.
fn has_database(settings: &Settings) -> Result<()> {
    if settings.user_database().exists() {
        return Ok(());
    }
    let directory = settings.data_directory.display();
    Err(Failure::failed(anyhow!("there is no user database in {directory}")).hint(
        "name the server's data directory with --data or --config; `turnpike user add NAME` makes a \
         database where there is none",
    ))
}

fn add(settings: &Settings, store: &mut SqliteStore, args: cli::UserAdd) -> Result<()> {
    if !settings.auth.users {
        eprintln!("note: auth.users is false in the configuration, so users may not relay");
    }
    let (password, generated) = match (args.password, args.password_stdin) {
        (Some(password), _) => (password, false),
        (None, true) => (read_password()?, false),
        (None, false) => {
            let made = Credentials::generate()
                .map_err(|error| Failure::failed(anyhow!("no random numbers: {error}")))?;
            (made.password.expose().clone(), true)
        }
    };
    let secret = Secret::new(password.clone());
    let user = NewUser::new(&settings.realm, &args.name, &secret, args.allocations_max)
        .map_err(Failure::usage)?;
    first_start::forget(&settings.data_directory, user.realm(), user.name())?;
    let replaced = store.replace(&user)?;
    let added = Added {
        realm: user.realm().to_owned(),
        username: user.name().to_owned(),
        password: generated.then_some(password),
        replaced,
    };
    if args.output.json {
        return output::print_json(&added);
    }
    let verb = if replaced { "has new keys" } else { "was added" };
    let mut text = format!("user {} {verb} in realm {}", added.username, added.realm);
    if let Some(password) = added.password {
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

fn list(settings: &Settings, store: &mut SqliteStore, output: cli::Output) -> Result<()> {
    let users = all(settings, store)?;
    if output.json {
        let listed: Vec<Listed> = users
            .into_iter()
            .map(|user| Listed {
                realm: user.realm,
                username: user.name,
                allocations_max: user.allocations_max,
                created_unix: user.created,
            })
            .collect();
        return output::print_json(&listed);
    }
    if users.is_empty() {
        return output::print(&format!(
            "realm {} has no users; add one with `turnpike user add NAME`",
            settings.realm
        ));
    }
    let mut table =
        Table::new(&[("name", Align::Left), ("realm", Align::Left), ("allocations", Align::Right)]);
    for user in users {
        let most = match user.allocations_max {
            None => "as configured".to_owned(),
            Some(0) => "any number".to_owned(),
            Some(n) => n.to_string(),
        };
        table.row([user.name, user.realm, most]);
    }
    output::print(&table.render())
}

/// Every user of the realm, page by page.
fn all(settings: &Settings, store: &mut SqliteStore) -> Result<Vec<UserSummary>> {
    let mut users: Vec<UserSummary> = Vec::new();
    loop {
        let after = users.last().map(|user| (user.realm.clone(), user.name.clone()));
        let page = Page { realm: Some(settings.realm.to_string()), after, limit: PAGE };
        let found = store.list(&page)?;
        if found.is_empty() {
            return Ok(users);
        }
        users.extend(found);
    }
}

fn delete(
    settings: &Settings,
    store: &mut SqliteStore,
    name: &str,
    output: cli::Output,
) -> Result<()> {
    let name = user_db::prepared_name(name).map_err(Failure::usage)?;
    first_start::forget(&settings.data_directory, &settings.realm, &name)?;
    if !store.delete(&settings.realm, &name)? {
        return Err(Failure::failed(anyhow!(
            "there is no user \"{name}\" in realm {}",
            settings.realm
        ))
        .hint("`turnpike user list` shows the users"));
    }
    if output.json {
        let realm = settings.realm.to_string();
        return output::print_json(&Deleted { realm, username: name });
    }
    output::print(&format!(
        "user {name} was deleted; its allocations end at their next refresh; to end them now: \
         `turnpike session end ID`"
    ))
}
