//! `/v1/revocations`: credentials that are refused, though they would still prove their user.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::{Extension, Json};
use control::{OperatorRequest, Revocable, RevokeWish, RevokedKind};
use tokio::sync::oneshot;

use crate::holder::Holder;
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Revocation, RevocationKind, Revocations, Revoke, Revoked};

const ADVICE: &str = "send {\"name\": \"alice\"}; \"kind\" (name, secret or token_key), \"realm\" and \"seconds\" may be \
                      added";

pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
) -> Result<Json<Revocations>, Problem> {
    let (reply, answer) = oneshot::channel();
    ask(&app, OperatorRequest::Revocations(reply)).await?;
    let all = answer.await.map_err(|_| Problem::stopping())?;
    let all = all.into_iter().filter(|one| caller.is_of(&one.realm));
    Ok(Json(Revocations { revocations: all.map(public).collect() }))
}

pub(super) async fn revoke(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    body: Bytes,
) -> Result<Json<Revoked>, Problem> {
    let body = read(&body)?;
    let lasts = body.seconds.map(Duration::from_secs);
    if lasts.is_some_and(|lasts| lasts.is_zero()) {
        return Err(Problem::bad_request("seconds is 0", "leave it out, or write a time"));
    }
    let (reply, answer) = oneshot::channel();
    let by_tenant = caller.realm.is_some();
    let wish = RevokeWish { what: what(body, &caller)?, lasts, by_tenant };
    ask(&app, OperatorRequest::Revoke { wish, reply }).await?;
    let report = answer.await.map_err(|_| Problem::stopping())?.map_err(Problem::of_operator)?;
    if report.ended > 0 {
        app.roll.forget().await;
    }
    Ok(Json(Revoked { revocation: public(report.revocation), ended: report.ended }))
}

pub(super) async fn restore(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    body: Bytes,
) -> Result<Json<Revocation>, Problem> {
    let (reply, answer) = oneshot::channel();
    let what = what(read(&body)?, &caller)?;
    ask(&app, OperatorRequest::Restore { what, reply }).await?;
    let restored = answer.await.map_err(|_| Problem::stopping())?.map_err(Problem::of_operator)?;
    Ok(Json(public(restored)))
}

async fn ask(app: &App, request: OperatorRequest) -> Result<(), Problem> {
    app.handle.operator(request).await.map_err(|_| Problem::stopping())
}

fn read(body: &[u8]) -> Result<Revoke, Problem> {
    let body: Revoke = serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(error.to_string(), ADVICE))?;
    if body.name.is_empty() {
        return Err(Problem::bad_request("the name is empty", ADVICE));
    }
    Ok(body)
}

fn what(body: Revoke, caller: &Holder) -> Result<Revocable, Problem> {
    let kind = match body.kind {
        RevocationKind::Name => RevokedKind::Name,
        RevocationKind::Secret => RevokedKind::Secret,
        RevocationKind::TokenKey => RevokedKind::TokenKey,
    };
    Ok(Revocable { kind, realm: caller.realm_of(body.realm)?, name: body.name })
}

fn public(revocation: control::Revocation) -> Revocation {
    let control::Revocation { kind, realm, name, since_unix, until_unix } = revocation;
    let kind = match kind {
        RevokedKind::Name => RevocationKind::Name,
        RevokedKind::Secret => RevocationKind::Secret,
        RevokedKind::TokenKey => RevocationKind::TokenKey,
    };
    Revocation { kind, realm, name, since_unix, until_unix }
}
