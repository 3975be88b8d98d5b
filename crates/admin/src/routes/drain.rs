//! `POST /v1/drain`: the same door as SIGTERM, with an answer and a deadline of one's own.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use control::OperatorRequest;
use tokio::sync::oneshot;

use crate::limits::DRAIN_MAX;
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Drain, DrainRequest};

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
    }))
}
