//! `POST /v1/drain`: as SIGTERM, with an answer and a deadline of one's own. `DELETE /v1/drain`:
//! takes it back.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use control::{CancelReport, OperatorRequest};
use tokio::sync::oneshot;

use crate::limits::DRAIN_MAX;
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Drain, DrainCancelled, DrainRequest};

pub(super) async fn drain(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Drain>, Problem> {
    let advice = "send {\"deadline_seconds\": 600} or no body at all";
    let body = body.map_err(|rejection| Problem::bad_request(rejection.body_text(), advice))?;
    let wish: DrainRequest = if body.is_empty() {
        DrainRequest::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| Problem::bad_request(error.to_string(), advice))?
    };
    let deadline = wish.deadline_seconds.map(Duration::from_secs);
    if let Some(asked) = deadline.filter(|deadline| *deadline > DRAIN_MAX) {
        let (asked, most) = (asked.as_secs(), DRAIN_MAX.as_secs());
        let error = format!("deadline_seconds is {asked}, and must be at most {most}, 7 days");
        return Err(Problem::bad_request(error, advice));
    }
    let (reply, answer) = oneshot::channel();
    let request = OperatorRequest::Drain { deadline, reply };
    app.handle.operator(request).await.map_err(|_| Problem::stopping())?;
    let report = answer.await.map_err(|_| Problem::stopping())?;
    Ok(Json(Drain {
        deadline_seconds: report.deadline.as_secs(),
        allocations_live: report.allocations_live,
        replaced_seconds_left: report.replaced.map(|left| left.as_secs()),
    }))
}

pub(super) async fn cancel(State(app): State<App>) -> Result<Json<DrainCancelled>, Problem> {
    let (reply, answer) = oneshot::channel();
    let request = OperatorRequest::CancelDrain(reply);
    app.handle.operator(request).await.map_err(|_| Problem::stopping())?;
    let conflict = |error, hint| Err(Problem::new(StatusCode::CONFLICT, error, hint));
    match answer.await.map_err(|_| Problem::stopping())? {
        CancelReport::Cancelled(left) => Ok(Json(DrainCancelled { seconds_left: left.as_secs() })),
        CancelReport::NotDraining => conflict(
            "the server does not drain",
            "there is nothing to cancel; `turnpike status` shows the state",
        ),
        CancelReport::ToldToEnd => conflict(
            "a signal told the server to end, and that is not taken back",
            "start the server again after its end; POST /v1/drain may give it another deadline",
        ),
    }
}
