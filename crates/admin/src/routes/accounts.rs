//! `/v1/accounts`: users of the database. A database that does not answer holds up nothing but
//! these routes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use control::SessionFilter;
use control::limits::USER_CHANGE_SEEN_WITHIN;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use turn_proto::UserName;
use turn_types::Secret;

use crate::accounts::{self, AccountEntry, AccountError, AccountWish};
use crate::holder::Holder;
use crate::limits::ACCOUNTS_AT_ONCE;
use crate::problem::Problem;
use crate::routes::App;
use crate::routes::views::row_limit;
use crate::types::{
    Account, Accounts, AddAccount, AddedAccount, DeleteAccount, DeletedAccount, ForgetAccounts,
    ForgottenAccounts,
};

const ADVICE: &str = "send {\"name\": \"alice\"}; see /v1/openapi.json for the other fields";

/// Time for the database: less than a route has.
const WITHIN: Duration = Duration::from_secs(10);

/// The users of the database, and how many operations it has at once.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    accounts: Arc<dyn accounts::Accounts>,
    permits: Arc<Semaphore>,
}

impl Database {
    pub(crate) fn new(accounts: Arc<dyn accounts::Accounts>) -> Self {
        Self { accounts, permits: Arc::new(Semaphore::new(ACCOUNTS_AT_ONCE)) }
    }

    /// Does something with the users. Of a database that does not answer in time the outcome is not
    /// known.
    async fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&dyn accounts::Accounts) -> Result<T, AccountError> + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            let error = "the user database is busy with other requests of operators";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error, "ask again in some seconds")
        })?;
        let accounts = Arc::clone(&self.accounts);
        let done = tokio::task::spawn_blocking(move || {
            let result = action(&*accounts);
            drop(permit);
            result
        });
        match tokio::time::timeout(WITHIN, done).await {
            Ok(Ok(result)) => result.map_err(problem),
            Ok(Err(_)) => Err(Problem::stopping()),
            Err(_) => Err(Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "the user database does not answer",
                "look at the list again before you repeat a change: it may have been made",
            )),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    realm: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Accounts>, Problem> {
    let hint = "the parameters are realm, after and limit (1 to 1000)";
    let Query(which) =
        which.map_err(|rejection| Problem::bad_request(rejection.body_text(), hint))?;
    let limit = row_limit(which.limit, hint)?;
    let realm = realm(&app, &caller, which.realm)?;
    let (of, after) = (realm.clone(), which.after);
    // One more than asked for tells whether there are more.
    let most = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let found = database(&app)?.with(move |users| users.list(&of, after.as_deref(), most));
    let mut accounts: Vec<Account> = found.await?.into_iter().map(account).collect();
    let more = accounts.len() > limit;
    accounts.truncate(limit);
    let next = accounts.last().filter(|_| more).map(|last| last.name.clone());
    Ok(Json(Accounts { realm, accounts, next }))
}

pub(super) async fn add(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    body: Bytes,
) -> Result<Json<AddedAccount>, Problem> {
    let AddAccount { name, realm: named, password, allocations_max, replace } = read(&body)?;
    let realm = realm(&app, &caller, named)?;
    let password = password.map(Secret::new);
    let wish =
        AccountWish { realm: realm.clone(), name, password, allocations_max, replaces: replace };
    let handle = app.handle.clone();
    let added = database(&app)?.with(move |users| {
        let changed = (wish.realm.clone(), wish.name.clone());
        let added = users.add(wish);
        // Also after an error: the change may have been made.
        let is_known = handle.forget_user(&changed.0, &changed.1);
        added.map(|added| (added, is_known))
    });
    let (added, is_known) = added.await?;
    repeat_unless(is_known)?;
    let accounts::AddedAccount { name, generated, replaced } = added;
    tracing::info!(by = caller.name, user = name, realm, replaced, "api: a user was added");
    let password = generated.map(|password| password.expose().clone());
    Ok(Json(AddedAccount { realm, name, password, replaced }))
}

pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    body: Bytes,
) -> Result<Json<DeletedAccount>, Problem> {
    let DeleteAccount { name, realm: named, end_sessions } = read(&body)?;
    let realm = realm(&app, &caller, named)?;
    let (of, asked) = (realm.clone(), name.clone());
    let handle = app.handle.clone();
    let deleted = database(&app)?.with(move |users| {
        let deleted = users.delete(&of, &asked);
        // Also after an error: the change may have been made.
        let is_known = handle.forget_user(&of, &asked);
        deleted.map(|deleted| (deleted, is_known))
    });
    let (deleted, is_known) = deleted.await?;
    repeat_unless(is_known)?;
    if let Some(name) = &deleted {
        tracing::info!(by = caller.name, user = name, realm, "api: a user was deleted");
    }
    // Also of an unknown user: the first of two requests may have had no response.
    let of = deleted.as_deref().map_or_else(|| UserName::form_of(&name), Cow::Borrowed);
    let ended = if end_sessions { end(&app, &realm, &of).await? } else { 0 };
    if ended > 0 {
        tracing::info!(by = caller.name, user = %of, realm, ended, "api: sessions were ended");
    }
    let name = deleted.ok_or_else(|| {
        Problem::not_found(
            format!("there is no user \"{name}\" in realm {realm}"),
            "GET /v1/accounts lists the users",
        )
    })?;
    Ok(Json(DeletedAccount { realm, name, ended }))
}

/// Forgets users that were changed in the database by another process.
pub(super) async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    body: Bytes,
) -> Result<Json<ForgottenAccounts>, Problem> {
    let ForgetAccounts { names, realm: named } = read(&body)?;
    let realm = realm(&app, &caller, named)?;
    for name in &names {
        repeat_unless(app.handle.forget_user(&realm, name))?;
    }
    tracing::info!(by = caller.name, users = names.len(), realm, "users were changed");
    Ok(Json(ForgottenAccounts { realm, forgotten: names.len() as u64 }))
}

/// Returns an error if the next process of the server does not know that a user was changed.
fn repeat_unless(is_known: bool) -> Result<(), Problem> {
    if is_known {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "another process of the server serves from now on, and does not know of this change yet",
        "repeat the request",
    ))
}

/// Deletes a user's allocations immediately, and a second time when earlier keys are no longer
/// valid for any request. Returns the number of deleted allocations.
async fn end(app: &App, realm: &str, name: &str) -> Result<u64, Problem> {
    let workers = &app.handle.workers;
    let filter = SessionFilter { user: Some(name.to_owned()), ..SessionFilter::default() };
    let mut ended = 0;
    for pause in [Duration::ZERO, USER_CHANGE_SEEN_WITHIN] {
        tokio::time::sleep(pause).await;
        let sessions = workers.all_sessions(&filter).await.map_err(Problem::of_workers)?;
        for session in sessions.iter().filter(|one| *one.record.realm == *realm) {
            let id = session.record.id;
            ended += u64::from(workers.end_session(id).await.map_err(Problem::of_workers)?);
        }
        app.roll.forget().await;
    }
    Ok(ended)
}

fn database(app: &App) -> Result<&Database, Problem> {
    app.accounts.as_ref().ok_or_else(|| {
        Problem::not_found(
            "this server looks no users up in a database",
            "set auth.users = true, and start it again",
        )
    })
}

/// The realm of a request: by default the caller's, or the server's own.
fn realm(app: &App, caller: &Holder, named: Option<String>) -> Result<String, Problem> {
    let realm = caller.realm_of(named)?;
    Ok(realm.unwrap_or_else(|| app.handle.info().realm.clone()))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The error of another body would quote it, with a password in it.
    serde_json::from_slice(body)
        .map_err(|_| Problem::bad_request("the body is not such an object in JSON", ADVICE))
}

fn account(entry: AccountEntry) -> Account {
    let AccountEntry { name, allocations_max, created_unix } = entry;
    Account { name, allocations_max, created_unix }
}

fn problem(error: AccountError) -> Problem {
    let text = error.to_string();
    match error {
        AccountError::Exists(_) => {
            let hint = "set \"replace\": true to give it a new password and limit";
            Problem::new(StatusCode::CONFLICT, text, hint)
        }
        AccountError::Invalid(_) => Problem::bad_request(text, ADVICE),
        AccountError::Failed(_) => {
            let hint =
                "nothing was changed; the log of the server may have more about its database";
            Problem::new(StatusCode::BAD_GATEWAY, text, hint)
        }
    }
}
