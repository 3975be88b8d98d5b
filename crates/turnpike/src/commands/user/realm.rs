//! Choice of the realm for commands about users. A user in a realm other than the server's could
//! never log in, without any hint at the reason.

use std::path::Path;

use admin::Client;
use anyhow::anyhow;

use crate::cli::PathOptions;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output;
use crate::paths::{self, Configuration};
use crate::tables::Tables;

/// Sources of a realm, from most to least certain.
pub(super) struct Sources<'a> {
    /// Realm of `--realm`, or of a named configuration.
    named: Option<&'a str>,
    /// Realm of the server that runs with this data directory.
    server: Option<String>,
    /// Realm of the usual configuration, or the default.
    usual: &'a str,
}

impl<'a> Sources<'a> {
    /// Collects the sources for a command. The running server is queried only if no realm is named.
    pub(super) fn of(
        paths: &PathOptions,
        option: Option<&'a str>,
        configuration: &'a Configuration,
    ) -> Result<Self> {
        let usual: &str = &configuration.settings.realm;
        let named = option.or_else(|| paths::names_realm(paths).then_some(usual));
        let server = match named {
            Some(_) => None,
            None => server(&configuration.settings.control_socket())?,
        };
        Ok(Self { named, server, usual })
    }

    /// Chooses the realm. `there` are the realms in the database with their numbers of users.
    pub(super) fn choose(self, there: &[(String, u64)]) -> Result<String> {
        if let Some(named) = self.named {
            return Ok(named.to_owned());
        }
        if let Some(server) = self.server {
            return Ok(server);
        }
        if there.is_empty() || there.iter().any(|(realm, _)| realm == self.usual) {
            return Ok(self.usual.to_owned());
        }
        Err(Failure::usage(anyhow!(
            "no realm was named, and the database has no user in realm {}: it has {}",
            self.usual,
            counted(there)
        ))
        .hint("name the server's configuration with --config, or the realm with --realm"))
    }
}

/// Maximum number of realms in a note.
const NAMED_MAX: usize = 8;

/// Prints a note if users of a realm could not log in. Neither the configuration, nor its database,
/// nor the running server then has the realm, whose name may be misspelt.
pub(super) fn warn_unless_served(
    configuration: &Configuration,
    there: &[(String, u64)],
    realm: &str,
) {
    let settings = &configuration.settings;
    // The users belong to a server whose configuration was not named.
    if configuration.file.is_none() && there.iter().any(|(known, _)| known == realm) {
        return;
    }
    // Without a response of the database, the realms are unknown.
    let Ok(of_database) = Tables::read(settings) else { return };
    if settings.has_realm(realm) || of_database.realms.contains_key(realm) {
        return;
    }
    if matches!(server(&settings.control_socket()), Ok(Some(served)) if served == realm) {
        return;
    }
    let own = std::iter::once(&*settings.realm);
    let configured = settings.realms.iter().filter_map(|entry| entry.name.as_deref());
    let names: Vec<&str> =
        own.chain(configured).chain(of_database.realms.keys().map(String::as_str)).collect();
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    let names = names.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    eprintln!(
        "{}",
        escape::line(&format!(
            "note: the configuration has no realm {realm}, so that its users cannot log in until it is in `realms`; it \
             has: {names}{more}"
        ))
    );
}

/// Formats realms with their numbers of users: `6 users in realm a, 1 user in realm b`.
pub(crate) fn counted(realms: &[(String, u64)]) -> String {
    let one = |(realm, users): &(String, u64)| {
        let s = if *users == 1 { "" } else { "s" };
        format!("{} user{s} in realm {realm}", output::grouped(*users))
    };
    realms.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the realm of the running server, or `None` if no server responds.
fn server(socket: &Path) -> Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async { Client::connect(socket).await?.status().await });
    Ok(status.ok().map(|status| status.realm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(named: Option<&str>, server: Option<&str>, there: &[(&str, u64)]) -> Option<String> {
        let sources = Sources { named, server: server.map(Into::into), usual: "turnpike" };
        let there: Vec<_> = there.iter().map(|(realm, n)| ((*realm).to_owned(), *n)).collect();
        sources.choose(&there).ok()
    }

    #[test]
    fn a_realm_is_never_guessed_against_the_database() {
        let one = Some("example.org".to_owned());
        assert_eq!(choose(Some("example.org"), None, &[("other", 1)]), one);
        assert_eq!(choose(None, Some("example.org"), &[("other", 1)]), one);
        let usual = Some("turnpike".to_owned());
        assert_eq!(choose(None, None, &[]), usual);
        assert_eq!(choose(None, None, &[("other", 5), ("turnpike", 1)]), usual);
        assert_eq!(choose(None, None, &[("other", 5)]), None);
    }

    #[test]
    fn realms_are_counted() {
        let realms = [("a".to_owned(), 6), ("b".to_owned(), 1)];
        assert_eq!(counted(&realms), "6 users in realm a, 1 user in realm b");
    }
}
