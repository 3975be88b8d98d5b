//! `GET /v1/sessions` and `DELETE /v1/sessions/{id}`: asks the workers, within their deadline.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use control::SessionFilter;
use serde::Deserialize;
use turn_types::AllocationId;

use crate::limits::{SESSIONS_DEFAULT, SESSIONS_MAX};
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Ended, Session, Sessions};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    user: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(app): State<App>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Sessions>, Problem> {
    let Query(which) = which.map_err(|rejection| {
        Problem::bad_request(rejection.body_text(), "the parameters are user and limit")
    })?;
    let limit = which.limit.unwrap_or(SESSIONS_DEFAULT);
    if !(1..=SESSIONS_MAX).contains(&limit) {
        let error = format!("limit is {limit}, and must be from 1 to {SESSIONS_MAX}");
        return Err(Problem::bad_request(error, "ask for one user's sessions to see fewer"));
    }
    let filter = SessionFilter { user: which.user };
    // One more than asked for tells whether there are more.
    let mut found =
        app.handle.workers.sessions(filter, limit + 1).await.map_err(Problem::of_workers)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let now = (app.clock)();
    Ok(Json(Sessions { sessions: found.iter().map(|s| Session::of(s, now)).collect(), more }))
}

pub(super) async fn end(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Ended>, Problem> {
    let Some(allocation) = AllocationId::parse(&id) else {
        return Err(Problem::bad_request(
            format!("\"{id}\" is not the id of a session"),
            "an id is 16 hexadecimal digits, as `turnpike sessions` shows it",
        ));
    };
    if app.handle.workers.end_session(allocation).await.map_err(Problem::of_workers)? {
        return Ok(Json(Ended { id: allocation.to_string() }));
    }
    Err(Problem::not_found(
        format!("there is no live session {allocation}"),
        "it may have ended already; `turnpike sessions` lists the live ones",
    ))
}
