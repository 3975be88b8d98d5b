//! `POST /v1/reload`: the same door as SIGHUP, with an answer.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use control::OperatorRequest;
use tokio::sync::oneshot;

use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Change, Reload, ReloadRequest};

pub(super) async fn reload(State(app): State<App>, body: Bytes) -> Result<Json<Reload>, Problem> {
    let ReloadRequest { end_sessions } = if body.is_empty() {
        ReloadRequest::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| {
            Problem::bad_request(
                error.to_string(),
                "send {\"end_sessions\": true} or no body at all",
            )
        })?
    };
    let (reply, answer) = oneshot::channel();
    let request = OperatorRequest::Reload { end_sessions, reply };
    app.handle.operator(request).await.map_err(|_| Problem::stopping())?;
    let report = answer.await.map_err(|_| Problem::stopping())?;
    if report.ended.is_some() {
        app.roll.forget().await;
    }
    Ok(Json(Reload {
        applied: report.applied.into_iter().map(change).collect(),
        needs_restart: report.needs_restart.into_iter().map(change).collect(),
        ended: report.ended,
        certificates_kept: report.certificates_kept,
        refused: report.refused,
    }))
}

fn change(change: control::Change) -> Change {
    Change { key: change.key, old: change.old, new: change.new }
}
