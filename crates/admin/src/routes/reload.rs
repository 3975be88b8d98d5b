//! `POST /v1/reload`: the same door as SIGHUP, with an answer.

use axum::Json;
use axum::extract::State;
use control::OperatorRequest;
use tokio::sync::oneshot;

use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Change, Reload};

pub(super) async fn reload(State(app): State<App>) -> Result<Json<Reload>, Problem> {
    let (reply, answer) = oneshot::channel();
    app.handle.operator(OperatorRequest::Reload(reply)).await.map_err(|_| Problem::stopping())?;
    let report = answer.await.map_err(|_| Problem::stopping())?;
    Ok(Json(Reload {
        applied: report.applied.into_iter().map(change).collect(),
        needs_restart: report.needs_restart.into_iter().map(change).collect(),
        refused: report.refused,
    }))
}

fn change(change: control::Change) -> Change {
    Change { key: change.key, old: change.old, new: change.new }
}
