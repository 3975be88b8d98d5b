//! `turnpike token`: manages tokens for the interface of `[api]`. A running server applies a change
//! from the next request on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::api::{Rights, Token, TokenError, TokenFile};
use serde::Serialize;
use settings::Settings;

use crate::cli::{self, PathOptions};
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output::{self, Align, Table};
use crate::paths::{self, Configuration};
use crate::tables::Tables;

#[derive(Debug, Serialize)]
struct Added<'a> {
    name: &'a str,
    role: &'a str,
    realm: Option<&'a str>,
    token: String,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    role: &'static str,
    realm: Option<String>,
    created_unix: u64,
    expires_unix: Option<u64>,
}

pub(crate) fn run(paths: &PathOptions, args: cli::Token) -> Result<()> {
    let configuration = paths::load(paths)?;
    let settings = &configuration.settings;
    let file = TokenFile::new(settings.api_tokens());
    match args {
        cli::Token::Add(args) => add(&file, &args, &configuration),
        cli::Token::List { output } => list(&file, output),
        cli::Token::Remove { name, output } => {
            file.remove(&name).map_err(failed)?;
            if output.json {
                return output::print_json(&serde_json::json!({ "name": name }));
            }
            output::print(&format!("token {name} was removed, and is refused from now on"))
        }
    }
}

fn add(file: &TokenFile, args: &cli::TokenAdd, configuration: &Configuration) -> Result<()> {
    let settings = &configuration.settings;
    let realm = args.realm.as_deref();
    let role = admin::Role::from(args.role);
    let token = file
        .add(&args.name, Rights::of(role).in_realm(realm).lasting(args.expires), SystemTime::now())
        .map_err(failed)?;
    // Without a configuration file, the realms of the server are unknown.
    if let Some(realm) = realm.filter(|_| configuration.file.is_some()) {
        warn_unless_served(settings, realm);
    }
    if args.output.json {
        return output::print_json(&Added { name: &args.name, role: role.name(), realm, token });
    }
    let end = args.expires.map_or_else(
        || "never expires".to_owned(),
        |time| format!("expires in {}", output::duration(time)),
    );
    output::print(&format!("token: {token}"))?;
    // Printed to standard error, because scripts read the token from standard output.
    let of_realm = realm.map_or_else(String::new, |realm| {
        escape::line(&format!(" for the realm {realm} alone")).into_owned()
    });
    eprintln!(
        "token {} has the role {}{of_realm} and {end}; keep it now, the server has its hash alone",
        args.name,
        role.name()
    );
    if settings.api.listen.is_empty() && configuration.file.is_some() {
        eprintln!(
            "note: api.listen is empty in the configuration, so nothing asks for tokens; set it, such as \
             api.listen = [\"127.0.0.1:9642\"], and start the server again"
        );
    }
    Ok(())
}

/// Warns about a realm that the server does not serve. A misspelt name would otherwise only result
/// in empty lists.
fn warn_unless_served(settings: &Settings, realm: &str) {
    // Without a response of the database, the realms are unknown.
    let Ok(of_database) = Tables::read(settings) else { return };
    if !settings.has_realm(realm) && !of_database.realms.contains_key(realm) {
        eprintln!("{}", escape::line(&format!("note: the configuration has no realm {realm}")));
    }
}

fn list(file: &TokenFile, output: cli::Output) -> Result<()> {
    let tokens = file.read().map_err(failed)?;
    if output.json {
        let listed = |token: Token| Listed {
            name: token.name,
            role: token.role.name(),
            realm: token.realm,
            created_unix: token.created_unix,
            expires_unix: token.expires_unix,
        };
        return output::print_json(&tokens.into_iter().map(listed).collect::<Vec<_>>());
    }
    if tokens.is_empty() {
        return output::print(
            "there are no tokens; make one with `turnpike token add NAME --role read`",
        );
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("role", Align::Left),
        ("realm", Align::Left),
        ("age", Align::Right),
        ("expires", Align::Right),
    ]);
    for token in tokens {
        let age = now.saturating_sub(Duration::from_secs(token.created_unix));
        table.row([
            token.name,
            token.role.name().to_owned(),
            token.realm.unwrap_or_else(|| "all".to_owned()),
            output::duration(Duration::from_secs(age.as_secs())),
            expires(token.expires_unix, now),
        ]);
    }
    output::print(&table.render())
}

fn expires(end: Option<u64>, now: Duration) -> String {
    match end.map(|end| Duration::from_secs(end).checked_sub(now)) {
        None => "never".to_owned(),
        Some(Some(left)) if left >= Duration::from_secs(1) => {
            format!("in {}", output::duration(Duration::from_secs(left.as_secs())))
        }
        Some(_) => "expired".to_owned(),
    }
}

fn failed(error: TokenError) -> Failure {
    let hint = match &error {
        TokenError::Name(_) => "choose another name",
        TokenError::Exists(_) => {
            "remove it first with `turnpike token remove NAME`, or choose another name"
        }
        TokenError::Unknown(_) => "`turnpike token list` shows the tokens",
        TokenError::Full => "remove one with `turnpike token remove NAME`",
        TokenError::Broken { .. } => "restore it from a backup, or remove it and make new tokens",
        TokenError::Io { .. } => {
            "run the command as the user of the server, or as root (sudo); name the data directory with --data or --config"
        }
    };
    Failure::failed(error).hint(hint)
}
