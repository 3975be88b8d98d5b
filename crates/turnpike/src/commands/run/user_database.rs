//! User database at the start of a server, with the users that the server needs.

use std::sync::Arc;

use settings::Settings;
use user_db::{Page, UserEditor};

use crate::accounts::DatabaseAccounts;
use crate::commands::user::realm;
use crate::failure::{Failure, Result};
use crate::first_start::{self, Shown};
use crate::users;

/// User database of a server that starts.
pub(super) struct UserDatabase {
    /// Warning that no client can relay yet.
    pub(super) warning: Option<String>,
    /// Generated user to show to the operator.
    pub(super) first_user: Option<Shown>,
    /// Access to the users for operators.
    pub(super) accounts: Option<Arc<DatabaseAccounts>>,
    /// Editor of the database. `None` if the database cannot be opened, and the server needs no
    /// users.
    pub(super) editor: Option<Box<dyn UserEditor>>,
    /// True if a shared database has not been read. The database may have no users.
    is_unread: bool,
}

impl UserDatabase {
    /// Opens the database. The database may have no users although only users can relay. In this
    /// case a server without a configuration (not `is_configured`) gets a generated user, and other
    /// servers get a warning.
    pub(super) fn open(settings: &Settings, is_configured: bool) -> Result<Self> {
        let mut editor = open_editor(settings)?;
        let relays_for_users_only = settings.needs_users()
            && !settings.takes_secrets_or_tokens()
            && !settings.auth.open_relay.is_open();
        let (mut first_user, mut warning) = (None, None);
        // A shared database may hang, and calls may wait for this server.
        let is_shared = settings.user_database().has_coturn_layout();
        let reads = relays_for_users_only && !is_shared;
        if let Some(editor) = editor.as_mut().filter(|_| reads) {
            if !is_configured {
                first_user = first_start::prepare(settings, &mut **editor)?;
            }
            warning = without_users(settings, &mut **editor)?;
        }
        let accounts = editor.is_some().then(|| Arc::new(DatabaseAccounts::of(settings)));
        let is_unread = relays_for_users_only && is_shared && editor.is_some();
        Ok(Self { warning, first_user, accounts, editor, is_unread })
    }

    /// Checks a shared database in the background. Logs a warning if the database does not respond,
    /// or has no users for this server. Users that are added later are found nevertheless.
    pub(super) fn warn_later(&self, settings: &Settings) {
        if !self.is_unread {
            return;
        }
        let settings = settings.clone();
        drop(tokio::task::spawn_blocking(move || {
            let looked = users::editor(&settings.user_database())
                .map_err(Failure::failed)
                .and_then(|mut editor| without_users(&settings, &mut *editor));
            match looked {
                Ok(None) => {}
                Ok(Some(warning)) => tracing::warn!("{warning}"),
                Err(failure) => {
                    tracing::warn!("the user database does not answer yet: {}", failure.reason());
                }
            }
        }));
    }
}

/// Opens the user database. Returns `None` if this fails and the server needs no users, as on a
/// read-only file system.
fn open_editor(settings: &Settings) -> Result<Option<Box<dyn UserEditor>>> {
    match users::editor(&settings.user_database()) {
        Ok(store) => Ok(Some(store)),
        Err(error) if !settings.needs_users() => {
            tracing::info!("no user database ({error}): auth.users = true needs a restart");
            Ok(None)
        }
        Err(error) if settings.user_database().file().is_none() => {
            let hint = "see users.database: docs/operate/databases.md has an example for each kind";
            Err(Failure::failed(error).hint(hint))
        }
        Err(error) => Err(Failure::failed(error).hint(
            "the data directory has to be writable for the server; name another with --data or data.directory, set \
             users.database, or auth.users = false for a server without users",
        )),
    }
}

/// Returns a warning if the realm has no users. The warning names other realms that have users.
fn without_users(settings: &Settings, store: &mut dyn UserEditor) -> Result<Option<String>> {
    let any = Page { realm: Some(settings.realm.to_string()), after: None, limit: 1 };
    if !store.list(&any)?.is_empty() {
        return Ok(None);
    }
    let elsewhere = store.realms()?;
    if elsewhere.is_empty() {
        return Ok(Some(
            "no client may relay yet: add a user with `turnpike user add NAME`".to_owned(),
        ));
    }
    Ok(Some(format!(
        "no client may relay: the realm is {}, and the database has {}; keys are made of name, realm and \
         password, so that these users need the old `realm`, or have to be added again",
        settings.realm,
        realm::counted(&elsewhere)
    )))
}
