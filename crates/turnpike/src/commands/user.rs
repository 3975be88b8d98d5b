//! `turnpike user`: manages users of the database. A running server applies a change within a
//! second.

mod bulk;
mod change;
mod lines;
mod password;
pub(crate) mod realm;
mod revoke;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use admin::types::ForgetAccounts;
use anyhow::anyhow;
use serde::Serialize;
use settings::Settings;
use user_db::{Page, Position, UserEditor, UserSummary};

use crate::cli::{self, PathOptions};
use crate::commands::ask_if_running;
use crate::failure::{Failure, Result};
use crate::output::{self, Align, Table};
use crate::{escape, first_start, paths, users};

/// Number of users per read from the database.
const PAGE: u32 = 1000;

#[derive(Debug, Serialize)]
struct Listed {
    realm: String,
    username: String,
    allocations_max: Option<u32>,
    created_unix: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Deleted {
    realm: String,
    username: String,
}

/// Maximum number of names in a request to the server, which accepts 16 KiB. A name has at most 508
/// bytes, and up to twice the size in JSON.
const NAMES_SENT: usize = 12;

/// Pauses before a request to the server is repeated. An upgrade may be in progress.
const REPEATED_AFTER: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

/// Users of one realm.
struct Database<'a> {
    /// Options that select the running server.
    paths: &'a PathOptions,
    store: Box<dyn UserEditor>,
    realm: String,
    /// Path of the data directory.
    directory: PathBuf,
}

pub(crate) fn run(paths: &PathOptions, args: cli::User) -> Result<()> {
    let realm = args.realm;
    let database = |adds| Database::open(paths, realm.as_deref(), adds);
    match args.command {
        cli::UserCommand::Add(args) => change::add(&mut database(true)?, args),
        cli::UserCommand::Set(args) => change::set(&mut database(false)?, &args),
        cli::UserCommand::Password(args) => {
            let mut database = database(false)?;
            let ends = args.end_sessions.then(|| args.name.clone());
            change::password(&mut database, args)?;
            ends.map_or(Ok(()), |name| revoke::end_sessions(paths, &database.realm, &name))
        }
        cli::UserCommand::Show { name, output } => show::show(&mut database(false)?, &name, output),
        cli::UserCommand::Export(args) => show::export(&mut database(false)?, &args),
        cli::UserCommand::List { output } => list(&mut database(false)?, output),
        cli::UserCommand::Delete { name, end_sessions, output } => {
            let mut database = database(false)?;
            delete(&mut database, &name, end_sessions, output)?;
            if end_sessions {
                revoke::end_sessions(paths, &database.realm, &name)?;
            }
            Ok(())
        }
        // The running server has the list of its realms, and the database is not involved.
        cli::UserCommand::Revoke(what) => revoke::revoke(paths, realm, &what),
        cli::UserCommand::Restore(what) => revoke::restore(paths, realm, &what),
        cli::UserCommand::Revoked { output } => revoke::list(paths, realm.as_deref(), output),
    }
}

impl<'a> Database<'a> {
    /// Opens the database of the configuration. Only a command that adds users (`adds`) creates a
    /// database.
    fn open(paths: &'a PathOptions, realm: Option<&str>, adds: bool) -> Result<Self> {
        let configuration = paths::load(paths)?;
        let settings = &configuration.settings;
        if !adds {
            has_database(settings)?;
        }
        let sources = realm::Sources::of(paths, realm, &configuration)?;
        let mut store = users::editor(&settings.user_database()).map_err(|error| {
            Failure::failed(error).hint(
                "name the server's data directory with --data or --config, or set users.database",
            )
        })?;
        let there = store.realms()?;
        let chosen = sources.choose(&there)?;
        if adds && realm.is_some() {
            realm::warn_unless_served(&configuration, &there, &chosen);
        }
        let realm = chosen;
        if adds && !settings.auth.users {
            eprintln!("note: auth.users is false in the configuration, so users may not relay");
        }
        Ok(Self { paths, store, realm, directory: settings.data.directory.clone() })
    }

    /// Changes users, and notifies a running server. Notifies also after an error, as the change
    /// may have been made.
    fn change<T>(&mut self, names: &[&str], change: impl FnOnce(&mut dyn UserEditor) -> T) -> T {
        let changed = change(&mut *self.store);
        self.tell_server(names);
        changed
    }

    /// Requests that a running server forgets users. The server would otherwise accept earlier keys
    /// if the database failed now.
    fn tell_server(&self, names: &[&str]) {
        let tell = || {
            ask_if_running(self.paths, async |client| {
                for names in names.chunks(NAMES_SENT) {
                    let names = names.iter().map(|name| (*name).to_owned()).collect();
                    let users = ForgetAccounts { names, realm: Some(self.realm.clone()) };
                    client.forget_accounts(&users).await?;
                }
                Ok(())
            })
        };
        let mut told = tell();
        let socket = paths::control_socket(self.paths).path;
        for pause in REPEATED_AFTER {
            // The successor of the queried process does not listen yet.
            let is_unheard = matches!(&told, Ok(None)) && socket.exists();
            if told.is_err() || is_unheard {
                std::thread::sleep(pause);
                told = tell();
            }
        }
        if let Err(failure) = told {
            let warning = format!(
                "warning: the running server may serve the earlier user for an hour if the database fails: {}",
                failure.reason()
            );
            // The reason may contain text of another process at the socket.
            eprintln!("{}", escape::lines(&warning));
        }
    }
}

/// Refuses a database that does not exist, because opening would create an empty database. A
/// command that lists or changes users then has named the wrong directory.
fn has_database(settings: &Settings) -> Result<()> {
    let database = settings.user_database();
    if users::exists(&database) {
        return Ok(());
    }
    let hint = if database.has_coturn_layout() {
        "correct the path in users.database; `turnadmin -l -b FILE` creates a file of coturn"
    } else {
        "name the server's data directory with --data or --config; `turnpike user add NAME` makes a \
         database where there is none"
    };
    Err(Failure::failed(anyhow!("there is no user database at {database}")).hint(hint))
}

/// Returns the error about an unknown user.
fn unknown(name: &str, realm: &str) -> Failure {
    Failure::failed(anyhow!("there is no user \"{name}\" in realm {realm}"))
        .hint("`turnpike user list` shows the users")
}

/// Describes a user's limit of allocations.
fn most(allocations_max: Option<u32>) -> String {
    match allocations_max {
        None => "as configured".to_owned(),
        Some(0) => "any number".to_owned(),
        Some(n) => n.to_string(),
    }
}

fn list(database: &mut Database<'_>, output: cli::Output) -> Result<()> {
    let users = all(database)?;
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
        let others = database.store.realms()?;
        let others = match &*others {
            [] => String::new(),
            others => format!("; there are {}", realm::counted(others)),
        };
        return output::print(&format!(
            "realm {} has no users; add one with `turnpike user add NAME`{}",
            database.realm,
            escape::line(&others)
        ));
    }
    let mut table =
        Table::new(&[("name", Align::Left), ("realm", Align::Left), ("allocations", Align::Right)]);
    for user in users {
        table.row([user.name, user.realm, most(user.allocations_max)]);
    }
    output::print(&table.render())
}

/// Returns every user of the realm, read page by page.
fn all(database: &mut Database<'_>) -> Result<Vec<UserSummary>> {
    let mut users: Vec<UserSummary> = Vec::new();
    loop {
        let position =
            |user: &UserSummary| Position { realm: user.realm.clone(), name: user.name.clone() };
        let after = users.last().map(position);
        let page = Page { realm: Some(database.realm.clone()), after, limit: PAGE };
        let found = database.store.list(&page)?;
        if found.is_empty() {
            return Ok(users);
        }
        users.extend(found);
    }
}

fn delete(
    database: &mut Database<'_>,
    name: &str,
    end_sessions: bool,
    output: cli::Output,
) -> Result<()> {
    let name = user_db::prepared_name(name).map_err(Failure::usage)?;
    let realm = database.realm.clone();
    first_start::forget(&database.directory, &realm, &name)?;
    if !database.change(&[&name], |store| store.delete(&realm, &name))? {
        return Err(unknown(&name, &realm));
    }
    if output.json {
        return output::print_json(&Deleted { realm, username: name });
    }
    let later = format!(
        "; its allocations end at their next refresh; to end them now: `turnpike session end --user {name}`"
    );
    let later = if end_sessions { "" } else { &later };
    output::print(&format!("user {name} was deleted in realm {}{later}", database.realm))
}
