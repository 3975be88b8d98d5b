//! `/v1/traces`: clients and users whose events are logged in detail for a while.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use control::limits::{TRACE_MAX, TRACES_MAX};
use turn_proto::UserName;
use turn_types::Prefix;

use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Trace, Traces};

const ADVICE: &str = "send {\"client\": \"192.0.2.0/24\", \"user\": \"alice\", \"seconds\": 600}; client and \
                      user may be left out";

pub(super) async fn list(State(app): State<App>) -> Json<Traces> {
    Json(all(&app))
}

pub(super) async fn add(State(app): State<App>, body: Bytes) -> Result<Json<Traces>, Problem> {
    let wish: Trace = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(error.to_string(), ADVICE))?;
    let client = wish.client.map(|client| client.parse::<Prefix>()).transpose();
    let not_one = |_| Problem::bad_request("client is no IP address and no network", ADVICE);
    let client = client.map_err(not_one)?;
    let most = TRACE_MAX.as_secs();
    if !(1..=most).contains(&wish.seconds) {
        let error = format!("seconds is {}, and must be from 1 to {most}, a day", wish.seconds);
        return Err(Problem::bad_request(error, ADVICE));
    }
    let now = (app.clock)();
    let until = now + Duration::from_secs(wish.seconds);
    let user = wish.user.map(|name| UserName::form_of(&name).into_owned());
    let trace = control::Trace { client, user, until };
    app.handle.traces.add(now, trace).map_err(|_| {
        let error = format!("there are {TRACES_MAX} traces, which is the maximum");
        Problem::bad_request(error, "end them with `turnpike log-level configured`")
    })?;
    Ok(Json(all(&app)))
}

pub(super) async fn clear(State(app): State<App>) -> Json<Traces> {
    app.handle.traces.clear((app.clock)());
    Json(all(&app))
}

fn all(app: &App) -> Traces {
    let now = (app.clock)();
    let trace = |trace: control::Trace| {
        let client = trace.client.map(|prefix| prefix.to_string());
        let left = trace.until.saturating_since(now);
        // Rounded up: ten minutes are ten minutes when they begin.
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Trace { client, user: trace.user, seconds }
    };
    Traces { traces: app.handle.traces.list(now).into_iter().map(trace).collect() }
}
